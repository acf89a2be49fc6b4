//! What a line says of its writer, in front of it.
//!
//! vLLM: `(EngineCore pid=20042) INFO …`. Ray, around that of others: `(Trainer pid=4711)`,
//! with `, ip=10.0.0.3` when it is of another machine. SGLang: `[2026-01-30 20:54:50 PP1 TP0]`.
//! torchrun: `[rank3]:`, `[default3]:`.

use crate::model::Tgid;

/// A prefix is no longer than this.
const PREFIX_BYTES_MAX: usize = 128;

/// Whose a line is, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Who {
    /// The process.
    pub(super) tgid: Option<Tgid>,
    /// Whether the process is on another machine, so that its id says nothing here.
    pub(super) is_elsewhere: bool,
    /// Its rank, as it is written.
    pub(super) rank: Option<String>,
}

impl Who {
    pub(super) fn of(line: &[u8]) -> Self {
        let mut who = Self::default();
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            let Some((inner, after)) = bracketed(rest, b'(', b')') else {
                break;
            };
            let mut words = inner.split(|byte| matches!(byte, b' ' | b','));
            let tgid = words.clone().find_map(|word| word.strip_prefix(b"pid="));
            let Some(tgid) = tgid.and_then(number) else {
                break;
            };
            who.tgid = Some(Tgid(tgid));
            who.is_elsewhere |= words.any(|word| word.starts_with(b"ip="));
            rest = after;
        }
        who.rank = bracketed(rest, b'[', b']').and_then(|(inner, _)| rank(inner));
        who
    }

    /// The process, where it is one of this machine.
    pub(super) fn here(&self) -> Option<Tgid> {
        self.tgid.filter(|_| !self.is_elsewhere)
    }
}

fn bracketed(text: &[u8], open: u8, close: u8) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(&[open])?;
    let end = memchr::memchr(close, &text[..text.len().min(PREFIX_BYTES_MAX)])?;
    Some((&text[..end], &text[end + 1..]))
}

/// `PP1 TP0` of `2026-01-30 20:54:50 PP1 TP0`, `3` of `rank3`.
fn rank(inner: &[u8]) -> Option<String> {
    let inner = std::str::from_utf8(inner).ok()?;
    for word in ["rank", "default"] {
        if let Some(digits) = inner.strip_prefix(word)
            && number(digits.as_bytes()).is_some()
        {
            return Some(digits.to_owned());
        }
    }
    let is_rank = |word: &&str| {
        let kind = word.trim_end_matches(|c: char| c.is_ascii_digit());
        kind.len() < word.len() && matches!(kind, "DP" | "PP" | "TP" | "EP" | "CP")
    };
    let ranks: Vec<&str> = inner.split(' ').filter(is_rank).collect();
    (!ranks.is_empty()).then(|| ranks.join(" "))
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(tgid: Option<u32>, is_elsewhere: bool, rank: Option<&str>) -> Who {
        Who {
            tgid: tgid.map(Tgid),
            is_elsewhere,
            rank: rank.map(str::to_owned),
        }
    }

    #[test]
    fn the_innermost_process_of_a_line_is_its_writer() {
        let cases = [
            (
                "(Worker pid=20113) INFO 11-21 x",
                who(Some(20113), false, None),
            ),
            ("(VllmWorker-0 pid=7) INFO x", who(Some(7), false, None)),
            ("(pid=12) x", who(Some(12), false, None)),
            (
                "(Engine pid=12) (EngineCore_DP0 pid=34) INFO x",
                who(Some(34), false, None),
            ),
            (
                "(Engine pid=12, ip=10.0.0.3) (EngineCore pid=34) INFO x",
                who(Some(34), true, None),
            ),
            ("(raylet) Spilled", Who::default()),
            ("INFO:     Application startup complete.", Who::default()),
            ("said (pid=3) behind", Who::default()),
            ("(pid=99999999999999) x", Who::default()),
            ("(pid=", Who::default()),
            ("", Who::default()),
        ];
        for (line, expected) in cases {
            assert_eq!(Who::of(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_rank_is_told_as_it_is_written() {
        let cases = [
            ("[2025-10-16 09:06:09 TP7] Init", Some("TP7")),
            ("[2026-01-30 20:54:50 PP1 TP0] Load", Some("PP1 TP0")),
            ("[2026-07-27 08:54:44] The server", None),
            ("[rank3]: Traceback", Some("3")),
            ("[default0]:epoch 1", Some("0")),
            ("[default] Starting worker group", None),
            ("(Engine pid=4) [2025-10-16 09:06:09 TP1] x", Some("TP1")),
        ];
        for (line, expected) in cases {
            assert_eq!(Who::of(line.as_bytes()).rank.as_deref(), expected, "{line}");
        }
    }
}
