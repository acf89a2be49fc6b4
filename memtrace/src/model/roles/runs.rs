//! What a command line runs: of Python the script, module or code, of anything else the program.
//! So that who only names a server in its arguments (`pgrep -f 'vllm serve'`, an editor, a shell)
//! is not taken for one.

/// The command line from the program or script on; `-m module …` and `-c code` of Python from
/// that option on. `exe` is the file that runs, where it is known: its path can have blanks.
pub(super) fn runs<'t>(title: &'t str, exe: Option<&str>) -> &'t str {
    match interpreter(title, exe) {
        Some(end) => script(title.get(end..).unwrap_or_default()).unwrap_or(title),
        None => title,
    }
}

/// Where the path of a Python interpreter ends.
fn interpreter(title: &str, exe: Option<&str>) -> Option<usize> {
    let ends = title.match_indices(' ').map(|(end, _)| end);
    let mut ends = ends.filter(|end| is_python(&title[..*end]));
    let first = title.find(' ')?;
    match exe {
        // A blank in the path: the interpreter's name comes after it.
        Some(exe) if is_python(exe) => ends.next(),
        _ => ends.next().filter(|end| *end == first),
    }
}

fn is_python(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let version = ["python", "pypy"]
        .iter()
        .find_map(|start| name.strip_prefix(start));
    let of_version = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | 'd' | 't');
    version.is_some_and(|version| version.trim_end_matches("bg").chars().all(of_version))
}

/// What stands behind the options of the interpreter.
fn script(arguments: &str) -> Option<&str> {
    let mut rest = arguments.trim_start_matches(' ');
    loop {
        let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        let Some(options) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
            return Some(rest).filter(|rest| !rest.is_empty());
        };
        let takes = options.find(['c', 'm', 'W', 'X']);
        match takes.filter(|_| !options.starts_with('-')) {
            Some(at) if matches!(options.as_bytes().get(at), Some(b'c' | b'm')) => {
                return Some(rest);
            }
            // Its argument is the next word.
            Some(at) if at + 1 == options.len() => {
                rest = behind.split_once(' ').map_or("", |(_, rest)| rest);
            }
            _ => rest = behind,
        }
        rest = rest.trim_start_matches(' ');
    }
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn of_python_it_is_the_script_the_module_or_the_code() {
        for (title, expected) in [
            ("/v/bin/python3 /v/bin/vllm serve m", "/v/bin/vllm serve m"),
            ("python3.11 -u -X dev -Wignore t.py --lr 3", "t.py --lr 3"),
            (
                "python -W ignore -m vllm.entrypoints.x",
                "-m vllm.entrypoints.x",
            ),
            (
                "python3 -B -c from x import y; y()",
                "-c from x import y; y()",
            ),
            ("python3 -um pkg", "-um pkg"),
            ("python3-dbg t.py", "t.py"),
            ("python3", "python3"),
            ("python3 -i", "python3 -i"),
        ] {
            assert_eq!(runs(title, None), expected);
        }
    }

    #[test]
    fn of_anything_else_it_is_the_program() {
        for title in [
            "pgrep -f vllm serve",
            "vim /opt/vllm serve",
            "bash -c python3 -m vllm.entrypoints.x",
            "pythonic -m vllm",
            "/usr/bin/vim x/python3 -m vllm.entrypoints.x",
            "VLLM::Worker_TP0",
        ] {
            assert_eq!(runs(title, None), title);
        }
    }

    #[test]
    fn the_path_of_the_interpreter_may_have_blanks() {
        let title = "/home/a b/bin/python3 /home/a b/bin/vllm serve m";
        let exe = Some("/usr/bin/python3.11");
        assert_eq!(runs(title, exe), "/home/a b/bin/vllm serve m");
    }
}
