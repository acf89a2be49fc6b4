//! Marks on their way: the message that programs send to a recording's socket. The format
//! is documented in docs/marks.md and versioned.

use super::tables::{MarkKind, MemRow, MemSource};
use super::{BootNs, Bytes, Label, Upid, WallNs};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The environment variable in which the traced command finds the socket's path.
pub const MARK_SOCKET_VARIABLE: &str = "MEMTRACE_SOCKET";

/// The version of the messages.
pub const MARK_VERSION: u32 = 1;

/// Longest message, in bytes.
pub const MARK_BYTES_MAX: usize = 32 * 1024;

/// Longest name; what is longer is cut.
pub const MARK_NAME_BYTES_MAX: usize = 256;

/// A mark as it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkMessage {
    /// Version of the message: [`MARK_VERSION`].
    pub v: u32,
    /// The word of a [`MarkKind`].
    pub kind: String,
    /// The mark or phase.
    pub name: String,
    /// The sender's CLOCK_BOOTTIME.
    pub boot_ns: i64,
    /// Pairs an end with its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<i64>,
    /// Attributes of the mark.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub attrs: Map<String, Value>,
    /// Whether the mark belongs to the recording and not to the process that sends it: what
    /// `memtrace mark` sends for a person or a script.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_recording: bool,
    /// Set on a begin whose sender may later ask what its descendants held until the end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub descendants: bool,
    /// Messages that the sender could not deliver since the last one that went through.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What a process measured of itself: RSS in all, and what it reported beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfReport {
    /// Resident memory in all.
    pub rss: Bytes,
    /// What of it is anonymous.
    pub anon: Option<Bytes>,
    /// Its address space (VmSize).
    pub vm_size: Option<Bytes>,
}

/// With five levels of page tables an address space has half of this.
const VM_SIZE_MAX: Bytes = Bytes(1 << 57);

impl SelfReport {
    /// By the attributes of a mark, as the Python package sends them.
    pub fn of(attributes: &Map<String, Value>) -> Option<Self> {
        let bytes = |name: &str| {
            let bytes = attributes.get(name)?.as_i64()?;
            (bytes > 0).then_some(Bytes(bytes))
        };
        let rss = bytes("rss_bytes")?;
        let anon = bytes("rss_anon_bytes").filter(|anon| *anon <= rss);
        let vm_size = bytes("vm_size_bytes").filter(|size| (rss..VM_SIZE_MAX).contains(size));
        Some(Self { rss, anon, vm_size })
    }

    /// The row of memory that it is.
    pub fn row(self, upid: Upid, boot_ns: BootNs, ts: WallNs) -> MemRow {
        MemRow {
            ts: ts.whole_ms(),
            boot_ns,
            upid,
            rss_bytes: Some(self.rss),
            rss_anon_bytes: self.anon,
            vm_size_bytes: self.vm_size,
            source: Some(MemSource::SelfReported),
            ..MemRow::default()
        }
    }
}

/// Bytes that are no message of this version.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Not the JSON object that a message is.
    #[error("not a mark: {0}")]
    Json(#[from] serde_json::Error),
    /// The message is of another version.
    #[error("a mark of version {0}; this memtrace knows version {MARK_VERSION}")]
    Version(u32),
    /// A kind that this version does not know.
    #[error("a mark of unknown kind {0:?}")]
    Kind(String),
    /// What is read in logs only, where whoever is recorded can't send it.
    #[error("a kill is a line of a log, and no message")]
    Kill,
    /// The name is empty.
    #[error("a mark without a name")]
    Nameless,
    /// Of a request that can't have been.
    #[error("an impossible request: {0}")]
    Request(&'static str),
    /// Longer than a message may be.
    #[error("a mark of more than {MARK_BYTES_MAX} bytes")]
    TooLong,
}

impl MarkMessage {
    /// A message about now.
    pub fn new(kind: MarkKind, name: &str, boot: BootNs) -> Self {
        Self {
            v: MARK_VERSION,
            kind: kind.as_str().to_owned(),
            name: name.to_owned(),
            boot_ns: boot.0,
            span: None,
            attrs: Map::new(),
            is_of_recording: false,
            descendants: false,
            dropped: 0,
        }
    }

    /// Reads one message and its kind. The name is cut at its bound.
    ///
    /// # Errors
    /// When the bytes are no message of this version.
    pub fn parse(bytes: &[u8]) -> Result<(Self, MarkKind), MarkError> {
        let mut message: Self = serde_json::from_slice(bytes)?;
        if message.v != MARK_VERSION {
            return Err(MarkError::Version(message.v));
        }
        let Some(kind) = MarkKind::from_word(&message.kind) else {
            return Err(MarkError::Kind(message.kind));
        };
        if message.name.is_empty() {
            return Err(MarkError::Nameless);
        }
        cut_at(&mut message.name, MARK_NAME_BYTES_MAX);
        Ok((message, kind))
    }

    /// The attributes as JSON text; `None` when there are none.
    pub fn attributes(&self) -> Option<String> {
        (!self.attrs.is_empty()).then(|| Value::Object(self.attrs.clone()).to_string())
    }
}

/// Cuts a text between characters, to so many bytes at most.
pub fn cut_at(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_comes_back_as_it_was_sent() {
        let mut sent = MarkMessage::new(MarkKind::End, "load_model", BootNs(12));
        sent.span = Some(7);
        sent.dropped = 3;
        sent.attrs.insert("rank".to_owned(), Value::from(1));
        let bytes = serde_json::to_vec(&sent).unwrap();
        let (received, kind) = MarkMessage::parse(&bytes).unwrap();
        assert_eq!(received, sent);
        assert_eq!(kind, MarkKind::End);
        assert_eq!(received.attributes().as_deref(), Some(r#"{"rank":1}"#));
    }

    #[test]
    fn members_that_are_not_known_are_ignored_and_a_pid_is_one_of_them() {
        let text = br#"{"v":1,"kind":"instant","name":"a","boot_ns":1,"pid":1,"upid":9}"#;
        let (message, kind) = MarkMessage::parse(text).unwrap();
        assert_eq!(message, MarkMessage::new(MarkKind::Instant, "a", BootNs(1)));
        assert_eq!(kind, MarkKind::Instant);
        assert_eq!(message.attributes(), None);
    }

    #[test]
    fn what_is_no_message_is_distinguished() {
        let error = |text: &[u8]| MarkMessage::parse(text).unwrap_err().to_string();
        assert!(error(b"load_model").starts_with("not a mark: "));
        assert!(error(b"\xff\xfe").starts_with("not a mark: "));
        let version = br#"{"v":2,"kind":"instant","name":"a","boot_ns":1}"#;
        assert!(error(version).contains("version 2"));
        let kind = br#"{"v":1,"kind":"middle","name":"a","boot_ns":1}"#;
        assert!(error(kind).contains("middle"));
        let nameless = br#"{"v":1,"kind":"begin","name":"","boot_ns":1}"#;
        assert_eq!(error(nameless), "a mark without a name");
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        let name = "ü".repeat(200);
        let sent = MarkMessage::new(MarkKind::Instant, &name, BootNs(1));
        let (received, _) = MarkMessage::parse(&serde_json::to_vec(&sent).unwrap()).unwrap();
        assert_eq!(received.name, "ü".repeat(128));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            if let Ok((message, _)) = MarkMessage::parse(&bytes) {
                prop_assert!(message.name.len() <= MARK_NAME_BYTES_MAX);
            }
        }
    }
}
