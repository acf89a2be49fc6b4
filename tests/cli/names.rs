//! Names that the traced programs chose: whatever they hold, none acts on a terminal, and
//! no format breaks on them.

use super::*;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A file name, an argument and a name in the kernel that hold what terminals act on and
/// what is not UTF-8.
fn hostile() -> [OsString; 2] {
    [
        OsString::from_vec(b"x\n\x1b[2J\xff\"|,\r".to_vec()),
        OsString::from_vec(b"arg \x1b]0;title\x07\n| \xc2\x9b31m \xe2\x80\xae\xff<b>`".to_vec()),
    ]
}

/// Records a program of such names.
fn recorded(backend: &str) -> Result<Recorded> {
    let dir = tempfile::tempdir()?;
    let [file, argument] = hostile();
    let program = dir.path().join(file);
    std::os::unix::fs::symlink("/bin/sh", &program)?;
    let mut command = Command::new(program);
    command.args(["-c", "sleep 0.7; :"]).arg(argument);
    let recorder = Recorder::of_command(&["--backend", backend], &command)?;
    let recorded = recorder.wait()?;
    assert_eq!(recorded.exit_code, 0);
    Ok(recorded)
}

/// Fails on anything that a terminal acts on but the end of a line.
fn assert_shows(text: &[u8], what: &str) -> Result<String> {
    let text = String::from_utf8(text.to_vec()).with_context(|| format!("{what} is not UTF-8"))?;
    let acting = text
        .chars()
        .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(acting, None, "{what}: {text:?}");
    Ok(text)
}

fn report(recorded: &Recorded, words_of: &[&str]) -> Result<Vec<u8>> {
    let path = recorded.path();
    let path = path.to_str().context("a path that is text")?;
    let output = memtrace([&["report", path], words_of].concat())?;
    assert!(output.status.success(), "{words_of:?}: {}", words(&output));
    Ok(output.stdout)
}

fn hostile_names_reach_no_terminal_and_break_no_format(backend: &str) -> Result<()> {
    let recorded = recorded(backend)?;
    for words_of in [["--format", "text"], ["--format", "md"]] {
        for tree in [&[][..], &["--tree"]] {
            let text = report(&recorded, &[&words_of, tree].concat())?;
            let text = assert_shows(&text, &format!("{backend} {words_of:?}"))?;
            assert!(text.contains(r"\n") && text.contains(r"\x1b"), "{text}");
        }
    }
    let json = report(&recorded, &["--format", "json"])?;
    assert_shows(&json, "json")?;
    let json: serde_json::Value = serde_json::from_slice(&json)?;
    let text = json.to_string();
    assert!(
        text.contains(r"x\n\u001b[2J"),
        "json keeps the name itself: {text}"
    );
    let csv = String::from_utf8(report(&recorded, &["--format", "csv"])?)?;
    let rows = parse_csv(&csv)?;
    let width = rows.first().context("no head")?.len();
    assert!(rows.len() > 1 && width > 3);
    for row in &rows {
        assert_eq!(row.len(), width, "{row:?}");
    }
    Ok(())
}

/// Fields as RFC 4180 has them.
fn parse_csv(text: &str) -> Result<Vec<Vec<String>>> {
    let mut rows = vec![vec![String::new()]];
    let mut is_quoted = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let row = rows.last_mut().context("a row")?;
        let field = row.last_mut().context("a field")?;
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' => is_quoted = !is_quoted,
            c if is_quoted => field.push(c),
            ',' => row.push(String::new()),
            '\r' => {}
            '\n' => rows.push(vec![String::new()]),
            c => field.push(c),
        }
    }
    anyhow::ensure!(!is_quoted, "a quote is not closed");
    // The last line ends like the others.
    rows.pop_if(|row| row.concat().is_empty());
    Ok(rows)
}

#[test]
fn hostile_names_reach_no_terminal_with_procfs() -> Result<()> {
    hostile_names_reach_no_terminal_and_break_no_format("procfs")
}

#[test]
fn hostile_names_reach_no_terminal_with_sysinfo() -> Result<()> {
    hostile_names_reach_no_terminal_and_break_no_format("sysinfo")
}

#[test]
fn hostile_names_of_the_command_itself_reach_no_terminal() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let [file, _] = hostile();
    let missing = dir.path().join(file);
    let place = dir.path().join("recording");
    let output = memtrace([
        "record".as_ref(),
        "-o".as_ref(),
        place.as_os_str(),
        "--".as_ref(),
        missing.as_os_str(),
    ])?;
    assert_eq!(output.status.code(), Some(127));
    assert_shows(&output.stderr, "the error")?;
    Ok(())
}

mod needs_bpf {
    use super::*;
    use memtrace_tests::need;

    #[test]
    fn hostile_names_reach_no_terminal_with_bpf() -> Result<()> {
        need::require("bpf");
        hostile_names_reach_no_terminal_and_break_no_format("bpf")
    }
}
