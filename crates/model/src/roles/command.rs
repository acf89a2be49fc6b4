//! What a command line runs: the program or, of an interpreter, the script or module. What is
//! only spoken of in its arguments, as in `pgrep -f 'vllm serve'` or in an editor's file, is not
//! run.

use std::borrow::Cow;

/// A long option of Python whose value is the next word.
const LONG_WITH_VALUE: &str = "--check-hash-based-pycs";

/// The part of a command line that begins with what is run: the program's path; of Python the
/// script's path, or `-m` or `-c`, a blank and what follows. A title that a process gave itself is
/// whole.
pub(super) fn command(title: &str) -> Cow<'_, str> {
    let Some((program, mut rest)) = title.split_once(' ') else {
        return title.into();
    };
    if !is_python(program) {
        return title.into();
    }
    loop {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let next = || after.split_once(' ').map_or("", |(_, after)| after);
        let Some(options) = word.strip_prefix('-').filter(|options| !options.is_empty()) else {
            return rest.into();
        };
        // The first of several in a word that takes a value takes the rest of the word, or the next.
        let with_value = options.find(['m', 'c', 'W', 'X']);
        rest = match with_value.filter(|_| !options.starts_with('-')) {
            Some(place) if options[place..].starts_with(['m', 'c']) => {
                let (option, value) = (&options[place..=place], &rest[place + 2..]);
                return match (place, value.starts_with(' ') || value.is_empty()) {
                    (0, true) => rest.into(),
                    (_, true) => format!("-{option}{value}").into(),
                    (_, false) => format!("-{option} {value}").into(),
                };
            }
            Some(place) if place + 1 == options.len() => next(),
            None if word == LONG_WITH_VALUE => next(),
            _ => after,
        };
    }
}

/// What of two commands is the same where one program was started twice, whatever its arguments and
/// the directory it was found in: the file name of the program or script, or the module. `None` for
/// code in the command line.
pub(super) fn script(run: &str) -> Option<&str> {
    let mut words = run.split(' ');
    match words.next().filter(|word| !word.is_empty())? {
        "-m" => words.next(),
        word if word.starts_with('-') => None,
        path => path.rsplit('/').next(),
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
    fn of_python_what_it_runs_is_reported_and_of_others_the_program() {
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
            ("python -mvllm.a --x y", "-m vllm.a --x y"),
            ("python -um vllm.a --x", "-m vllm.a --x"),
            ("python -Bumvllm.a", "-m vllm.a"),
            ("python -uW error -BX dev s.py -m a", "s.py -m a"),
            ("python -Xmm -Wcc s.py", "s.py"),
            ("python --check-hash-based-pycs never s.py", "s.py"),
            ("python --help-env -m", "-m"),
            ("python3 -Ic import a", "-c import a"),
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

    #[test]
    fn a_script_is_the_same_one_wherever_it_was_found() {
        let same = [
            ("train.py --lr 3", "/s/train.py --lr 3 hydra.run.dir=x"),
            ("-m team.train a", "-m team.train b"),
        ];
        for (one, other) in same {
            assert_eq!(script(one), script(other));
        }
        assert_ne!(script("train.py"), script("-m train.py.x"));
        assert_eq!(script("-c import a"), None);
        assert_eq!(script(""), None);
    }

    /// What is run, without the option before it, which can have stood among others.
    fn end_of(run: &str) -> &str {
        let value = run.strip_prefix("-m").or_else(|| run.strip_prefix("-c"));
        value.unwrap_or(run).trim_start()
    }

    proptest! {
        #[test]
        fn any_title_has_one_and_it_is_the_titles_end(title: String, words: Vec<String>) {
            for line in [format!("python3 {}", words.join(" ")), title] {
                prop_assert!(line.ends_with(end_of(&command(&line))), "{line}");
            }
        }

        #[test]
        fn options_of_python_are_read_in_any_words(words in "(-{0,2}[mcWXu]{0,3}e? ?){0,6}") {
            let line = format!("python3 {words}");
            prop_assert!(line.ends_with(end_of(&command(&line))), "{line}");
        }
    }
}
