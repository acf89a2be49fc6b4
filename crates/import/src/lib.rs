//! Files of load generators: what each says of its requests, and where that stands in a recording. And
//! snapshots of torch's allocator ([`torch`]).
//!
//! A [`Format`] understands the files of one generator; [`read`] finds which one a file is of. What
//! it says becomes rows by [`Clocks`](memtrace_model::Clocks) and [`place`]. No I/O but the reading of what is handed in.

mod aiperf;
mod bench_serving;
mod file;
mod formats;
mod guidellm;
mod inference_perf;
mod known;
mod median;
mod object;
mod outcome;
mod pickle;
mod place;
mod python_json;
pub mod torch;

use memtrace_model::clocks;

/// Longer files are refused: no report looks at as many requests as they would have.
pub const FILE_BYTES_MAX: u64 = 8 << 30;

pub use file::{Asked, Beside, FormatError, LoadFile, REQUESTS_MAX, Run, Sent};
pub use formats::{FORMATS, Format, format_of, read};
pub use known::{Changed, Known};
pub use outcome::Failure;
pub use pickle::PickleError;
pub use place::{PlaceError, Placed, place, rows};

#[cfg(test)]
mod tests;
