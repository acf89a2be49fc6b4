//! The answer to a call: what commands of memtrace write, as a person would read it, bounded.
//!
//! Each is a process of its own. So an answer is what a person gets, with what is said on stderr beside
//! it; one that is taken back ends at once; and what a recording takes to be read is free afterwards.

use super::calls::Calls;
use crate::cli::own_program::own_program;
use anyhow::Context;
use memtrace_report::words;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{self, Read};
use std::process::{Command, Stdio};

/// An answer has no more than this, about a quarter as many tokens.
pub(super) const ANSWER_BYTES: usize = 64 << 10;
/// And so much of what was said beside it.
const SAID_BYTES: usize = 8 << 10;

/// The words of a command line, without the program's name.
pub(super) type Words = Vec<OsString>;

/// What a tool answers.
#[derive(Debug, Default)]
pub(super) struct Answer {
    texts: Vec<String>,
    is_error: bool,
}

impl Answer {
    /// It could not be answered.
    pub(super) fn error(why: String) -> Self {
        Self {
            texts: vec![why],
            is_error: true,
        }
    }

    /// The result of the call.
    pub(super) fn into_result(self) -> Value {
        let texts = self.texts.into_iter();
        let content = texts.map(|text| json!({"type": "text", "text": text}));
        json!({"content": content.collect::<Vec<_>>(), "isError": self.is_error})
    }

    /// What these commands say, one after the other, until one fails.
    pub(super) fn of(commands: &[Words], is_json: bool, calls: &Calls, id: &Value) -> Self {
        let mut answer = Self::default();
        let mut left = ANSWER_BYTES;
        for words in commands {
            if calls.is_cancelled(id) {
                break;
            }
            let said = match Said::by(words, left, calls, id) {
                Ok(said) => said,
                Err(error) => return Self::error(format!("{error:#}")),
            };
            if let Some(why) = said.failure(is_json) {
                return Self::error(why);
            }
            left -= said.text.kept.len();
            answer.texts.push(said.text.shown());
            if !said.beside.kept.is_empty() {
                answer.texts.push(said.beside.shown());
            }
        }
        answer
    }
}

/// What a command said.
struct Said {
    text: Bounded,
    beside: Bounded,
    /// How it ended, where it failed.
    status: Option<String>,
}

impl Said {
    fn by(words: &Words, most: usize, calls: &Calls, id: &Value) -> anyhow::Result<Self> {
        let program = own_program().context("failed to find this program")?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // What is meant for a terminal is not for a reader without one.
        command.env_remove("COLUMNS");
        let mut child = command.spawn().context("failed to start memtrace")?;
        let (out, beside) = (child.stdout.take(), child.stderr.take());
        calls.begin(id, child);
        let (text, beside) = std::thread::scope(|scope| {
            let beside = scope.spawn(|| Bounded::read(beside, SAID_BYTES));
            let text = Bounded::read(out, most);
            let beside = beside.join();
            (
                text,
                beside.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            )
        });
        let status = calls.end(id).context("failed to wait for memtrace")?;
        let reading = "failed to read what memtrace said";
        Ok(Self {
            text: text.context(reading)?,
            beside: beside.context(reading)?,
            status: (!status.success()).then(|| status.to_string()),
        })
    }

    /// Why this is no answer.
    fn failure(&self, is_json: bool) -> Option<String> {
        if let Some(status) = &self.status {
            return Some(match self.beside.kept.is_empty() {
                true => format!("memtrace ended without an answer: {status}"),
                false => self.beside.shown(),
            });
        }
        let bytes = self.text.kept.len() + self.text.left_bytes;
        // A part of an object is none.
        (is_json && self.text.left_bytes > 0).then(|| {
            format!(
                "the JSON has {bytes} bytes, and an answer at most {ANSWER_BYTES}: ask for one section, \
                 for fewer rows, or for text"
            )
        })
    }
}

/// Whole lines of a text that may be longer, and how much was left out.
#[derive(Debug, Default, PartialEq)]
struct Bounded {
    kept: Vec<u8>,
    left_bytes: usize,
    left_lines: usize,
}

impl Bounded {
    /// Reads to the end, and keeps at most so many bytes.
    fn read(from: Option<impl Read>, most: usize) -> io::Result<Self> {
        let mut bounded = Self::default();
        let Some(mut from) = from else {
            return Ok(bounded);
        };
        from.by_ref()
            .take(most as u64)
            .read_to_end(&mut bounded.kept)?;
        let mut piece = vec![0; 64 << 10];
        loop {
            match from.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => bounded.leave(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        if bounded.left_bytes > 0 {
            let end = bounded.kept.iter().rposition(|&byte| byte == b'\n');
            let rest = bounded.kept.split_off(end.map_or(0, |end| end + 1));
            bounded.leave(&rest);
        }
        Ok(bounded)
    }

    fn leave(&mut self, bytes: &[u8]) {
        self.left_bytes += bytes.len();
        self.left_lines += bytes.iter().filter(|&&byte| byte == b'\n').count();
    }

    fn shown(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.kept).into_owned();
        if self.left_bytes > 0 {
            let lines = words::counted(self.left_lines, "more line", "more lines");
            text += &format!(
                "[{lines} of {} bytes left out: ask for one section, or for fewer rows]\n",
                self.left_bytes
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_after_a_line_and_says_what_is_missing() {
        let line = "0123456789äöü\n";
        let text = line.repeat(100_000);
        let bounded = Bounded::read(Some(text.as_bytes()), ANSWER_BYTES).expect("a text");
        let kept = ANSWER_BYTES / line.len();
        assert_eq!(bounded.kept, line.repeat(kept).as_bytes());
        assert_eq!(bounded.left_lines, 100_000 - kept);
        assert_eq!(bounded.left_bytes, line.len() * bounded.left_lines);
        let end = format!(
            "[{} of {} bytes left out: ask for one section, or for fewer rows]\n",
            words::counted(bounded.left_lines, "line", "more lines"),
            bounded.left_bytes
        );
        assert!(bounded.shown().ends_with(&end));
        let whole = Bounded::read(Some(&text.as_bytes()[..ANSWER_BYTES]), ANSWER_BYTES);
        assert_eq!(whole.expect("a text").left_bytes, 0);
        let one_line = vec![b'x'; ANSWER_BYTES + 1];
        let cut = Bounded::read(Some(&*one_line), ANSWER_BYTES).expect("a text");
        assert_eq!((cut.kept.len(), cut.left_bytes), (0, ANSWER_BYTES + 1));
        assert_eq!(
            Bounded::read(None::<&[u8]>, 1).expect("none"),
            Bounded::default()
        );
    }
}
