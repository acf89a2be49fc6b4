//! The most of everything that somebody else decides: what a server sends, how long it takes, how much of
//! it is kept. One that is endless, slow or lies costs no more than this, and what it costs is said.
//!
//! Times are those of the options where there is one. What a person asks for has bounds of its own
//! (`load/plan`).

use indicatif::BinaryBytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Memory of this process, as the kernel counts what it may write to (`RLIMIT_DATA`): with the pages
/// of the program itself it stays below 128 MiB. Address space would count too much: each thread reserves
/// 64 MiB of it for a heap.
const MEMORY_BYTES: u64 = 112 << 20;

/// So much more for the figures of a recording: some 4 KiB for each process that is alive.
pub(crate) const FIGURES_BYTES: u64 = 144 << 20;

/// The head of an answer, and what is read of an answer in one go. There may be 4,096 connections.
pub(crate) const HEAD_BYTES: usize = 16 << 10;

/// An answer in one piece: a million tokens of text, or a list of them.
pub(crate) const ANSWER_BYTES: usize = 4 << 20;

/// The count of a prompt, with which a list of its tokens may come: two million.
pub(crate) const COUNTED_BYTES: usize = 16 << 20;

/// Of what a server says when it refuses no more is read.
pub(crate) const REFUSAL_BYTES: usize = 64 << 10;

/// A line of a stream of events. One with a token is some hundred bytes.
pub(crate) const EVENT_BYTES: usize = 1 << 20;

/// What has come of all answers that are under way and not whole.
pub(crate) const UNDER_WAY_BYTES: usize = 24 << 20;

/// One page of a listing: a thousand keys of 1,024 bytes, each of which XML may write as five.
pub(crate) const PAGE_BYTES: usize = 8 << 20;

/// What is kept of a listing. Beside the name each entry costs something, and so does each page, that one
/// without names ends too: 8,192 of those, or some 150,000 parts of recordings.
pub(crate) const LISTING_BYTES: usize = 32 << 20;
pub(crate) const LISTING_ENTRY_BYTES: usize = 160;
pub(crate) const LISTING_PAGE_BYTES: usize = 4 << 10;

/// A `run.json` at a root, of which no more is kept than what tells it from another.
pub(crate) const RUN_FILE_BYTES: u64 = 8 << 20;

/// Servers behind one router, or in one log.
pub(crate) const SERVERS: usize = 1_024;

/// The log of a job that is searched for addresses.
pub(crate) const LOG_BYTES: u64 = 1 << 30;

/// For so long nothing may arrive before somebody gives up, where no option says otherwise.
pub(crate) const PATIENCE_SECONDS: &str = "300";

/// A connection is made within this, TLS and all.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Where a machine of a cloud finds its own credentials. Elsewhere nobody answers there.
pub(crate) const METADATA_TIME: Duration = Duration::from_secs(1);

/// For an answer of a bucket to begin, and for it to go on when it has stopped.
pub(crate) const SILENCE_TIME: Duration = Duration::from_secs(60);

/// A line that is slower than this is none: what takes longer, beside [`SILENCE_TIME`], is given up.
pub(crate) const SLOW_LINE_BYTES_PER_S: u64 = 32 << 10;

/// A server that is well says so, and what it is, within this.
pub(crate) const LOOK_TIME: Duration = Duration::from_secs(10);

/// A server that has nothing else to do counts the tokens of a prompt within this.
pub(crate) const COUNT_TIME: Duration = Duration::from_secs(2);

/// What was asked to end by SIGTERM has so long to tidy up.
pub(crate) const TERMINATION_TIME: Duration = Duration::from_millis(800);

/// Who asks for figures reads them and goes; monitoring systems give up after 10 s too.
pub(crate) const SCRAPE_TIME: Duration = Duration::from_secs(10);
pub(crate) const SCRAPES: usize = 8;

/// What takes figures answers within this, and in a few words.
pub(crate) const OTLP_TIME: Duration = Duration::from_secs(10);
pub(crate) const OTLP_BYTES: usize = 64 << 10;

/// Figures are no newer than this: a recorder writes once a second.
pub(crate) const FIGURES_TIME: Duration = Duration::from_secs(1);

/// Threads that wait for names and file systems, each with a stack on which a resolver has room.
pub(crate) const WAITING_THREADS: usize = 8;
pub(crate) const STACK_BYTES: usize = 1 << 20;

/// What is in force, for the message of whoever finds that it is not enough.
static MEMORY_IN_FORCE: AtomicU64 = AtomicU64::new(0);

/// Holds this process to its memory, and to so much more that the person's own plan takes.
pub(crate) fn hold_memory(more_bytes: u64) {
    let most = MEMORY_BYTES.saturating_add(more_bytes);
    let mut limit = getrlimit(Resource::Data);
    let most = limit.maximum.map_or(most, |maximum| most.min(maximum));
    limit.current = Some(most);
    // Without it the bounds above hold all the same.
    if setrlimit(Resource::Data, limit).is_ok() {
        MEMORY_IN_FORCE.store(most, Ordering::Relaxed);
    }
}

/// The system's allocator; where it has no more to give, the program ends with a sentence.
struct Held;

#[global_allocator]
static ALLOCATOR: Held = Held;

// SAFETY: all of it is done by the system's allocator, whose answers are handed on.
unsafe impl GlobalAlloc for Held {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that it asks for.
        given(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, there: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        given(unsafe { System.realloc(there, layout, size) }, size)
    }

    unsafe fn dealloc(&self, there: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(there, layout) }
    }
}

fn given(there: *mut u8, size: usize) -> *mut u8 {
    let most = MEMORY_IN_FORCE.load(Ordering::Relaxed);
    if there.is_null() && most > 0 {
        MEMORY_IN_FORCE.store(0, Ordering::Relaxed);
        // What writes the sentence needs some memory itself.
        let limit = getrlimit(Resource::Data);
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        let _ = setrlimit(Resource::Data, raised);
        memtrace::cli::say(&format!(
            "ended, since it would hold more than the {} that it may ({size} bytes more were asked for): a \
             server or a file gave more than any that is sound, or a recording has more processes than fit",
            BinaryBytes(most)
        ));
        std::process::exit(1);
    }
    there
}
