//! What a command line runs: the program or, of an interpreter, the script or module. What is
//! only spoken of in its arguments, as in `pgrep -f 'vllm serve'` or in an editor's file, is not
//! run.

/// Options of Python whose value is the next word.
const WITH_VALUE: [&str; 3] = ["-W", "-X", "--check-hash-based-pycs"];

/// The part of a command line that begins with what is run: the program's path; of Python the
/// script's path, or `-m` or `-c` and what follows. A title that a process gave itself is
/// whole.
pub(super) fn command(title: &str) -> &str {
    let Some((program, mut rest)) = title.split_once(' ') else {
        return title;
    };
    if !is_python(program) {
        return title;
    }
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let is_option = word.starts_with('-') && !matches!(word, "-m" | "-c" | "-");
        if !is_option {
            return rest;
        }
        rest = match WITH_VALUE.contains(&word) {
            true => after.split_once(' ').map_or("", |(_, after)| after),
            false => after,
        };
    }
}

/// `python3.11`, `/opt/v/bin/python`, `pypy3`, the `Python` of macOS.
fn is_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    let version = name
        .strip_prefix("python")
        .or_else(|| name.strip_prefix("Python"))
        .or_else(|| name.strip_prefix("pypy"));
    // A `t` stands for free threads, a `d` for a debug build.
    let is_version = |rest: &str| {
        rest.chars()
            .all(|c| c.is_ascii_digit() || ".td".contains(c))
    };
    version.is_some_and(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn of_python_what_it_runs_is_told_and_of_others_the_program() {
        let cases = [
            (
                "/v/bin/python3.11 /v/bin/vllm serve m",
                "/v/bin/vllm serve m",
            ),
            ("python3.13t -B -X dev -u /s/a.py --b", "/s/a.py --b"),
            ("python -Wignore -W error -m vllm.a --x", "-m vllm.a --x"),
            (
                "pypy3 -c from a import main;main(3)",
                "-c from a import main;main(3)",
            ),
            ("python3 - vllm serve", "- vllm serve"),
            ("pgrep -f /v/bin/vllm serve", "pgrep -f /v/bin/vllm serve"),
            ("python-build -m vllm.a", "python-build -m vllm.a"),
            ("/opt/python3/bin/vim -m a", "/opt/python3/bin/vim -m a"),
            ("VLLM::Worker", "VLLM::Worker"),
            ("python3 -u", ""),
            ("python3 -X", ""),
            ("python3", "python3"),
            ("", ""),
        ];
        for (title, expected) in cases {
            assert_eq!(command(title), expected, "{title}");
        }
    }

    proptest! {
        #[test]
        fn any_title_has_one_and_it_is_the_titles_end(title: String, words: Vec<String>) {
            let line = format!("python3 {}", words.join(" "));
            prop_assert!(title.ends_with(command(&title)));
            prop_assert!(line.ends_with(command(&line)));
        }
    }
}
