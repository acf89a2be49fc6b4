//! Keeps a recording: the crash-safe spool, its conversion to Parquet, and the reader.
//!
//! The only room that knows Arrow IPC and Parquet files. A recording is a directory:
//!
//! ```text
//! run.json                          what was recorded, where, how far it came
//! manifest.jsonl                    which files of rows it has
//! spool/<table>-00001.arrows        Arrow IPC streams, while recording
//! <table>/part-00001.parquet        the same rows, once a segment was converted
//! damaged/                          files that could not be read in full, put aside
//! phase/, role_mem/                 what a report found, as tables; the recording is whole without
//! ```
//!
//! Rows go to the spool first, because a Parquet file has no footer, and so cannot be
//! read at all, before it is closed. A spool segment can be read up to its last complete
//! batch at any time. [`Writer`] fills it, a background thread turns full segments into
//! Parquet, [`Recording`] reads both, and [`recover`] closes what a killed recorder left.
//!
//! One rule decides which file a row is read from, and makes every step of a conversion
//! safe to be interrupted. Segments and parts of a table are numbered, and a part may
//! state a *cut*, a time:
//!
//! > Of a segment whose number is not above that of the newest part, the rows up to that
//! > part's cut are in parts; the later ones are not yet. A part without a cut has all.
//!
//! Where parts are carried away while the recording goes on, segments are closed by time too
//! ([`Writer::rotate`]), and the rows that a cut leaves behind are not left waiting for ones that may
//! never come: the segment that takes them along may have none of its own.

mod ahead;
mod append;
mod batch;
mod bounds;
mod checksum;
mod close;
mod column_decoder;
mod column_encoder;
mod compact;
mod compactor;
mod contain;
mod dir;
mod disk;
mod downsample;
mod error;
mod files;
mod findings;
mod folder;
mod framing;
mod gather;
mod kept;
mod layout;
mod listed;
mod manifest;
mod manifest_writer;
mod origin;
mod outgoing;
mod page_guard;
mod part_file;
mod part_head;
mod part_reader;
mod part_schema;
mod part_writer;
mod problem;
mod reading;
mod recording;
mod recordings;
mod recover;
mod remote;
mod resequence;
mod revision;
mod room;
mod root;
mod run_file;
mod schema;
mod segment_reader;
mod segment_writer;
mod sources;
mod tail;
mod tiers;
mod upsert;
mod writer;

#[cfg(test)]
mod tests;

pub use downsample::{Counted, Sampling};
pub use error::StoreError;
pub use findings::FindingsWriter;
pub use kept::{Kept, kept, remove_recording, size_of_recording};
pub use listed::recordings_in;
pub use manifest::MANIFEST;
pub use outgoing::{Looked, Outgoing, OutgoingPart, ReplacedParts, as_open};
pub use problem::{Problem, ProblemKind};
pub use recording::Recording;
pub use recordings::Recordings;
pub use recover::{RecoverReport, recover};
pub use remote::{Answer, Ask, FileThere, NEAR_BYTES, QUESTION_BYTES, RemoteReader, asked_bytes};
pub use revision::Revision;
pub use room::{make_room, remove_empty_folders};
pub use root::{Placed, Root};
pub use run_file::{RUN_FILE, read_run_info};
pub use tail::{Tail, TailState};
pub use writer::{Stats, Writer};
