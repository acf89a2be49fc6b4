//! `diag`: what was lost, refused or degraded.

use crate::labels;
use crate::table::table;
use crate::{BootNs, WallNs};

table! {
    /// Something the reader of the recording must know before trusting an absence: lost events, refused reads, probes that could not attach.
    pub struct DiagRow in "diag" {
        /// Wall-clock time (UTC).
        ts: WallNs,
        /// Time on CLOCK_BOOTTIME.
        boot_ns: BootNs,
        /// How much it matters.
        severity: Option<Severity>,
        /// What kind of thing happened.
        kind: Option<DiagKind>,
        /// What it concerns: a loss class, a probe, a file, a process.
        subject: String,
        /// How often since the last row of the same kind and subject; null when it can't be counted.
        count: Option<i64>,
        /// One sentence for the person.
        detail: String,
    }
}

impl DiagRow {
    /// The subject of the row that says how calls on address spaces are seen, or, of kind
    /// [`DiagKind::Unavailable`], that they are not.
    pub const PROBES: &'static str = "probes";
}

labels! {
    /// How much a diagnostic matters.
    pub enum Severity {
        /// Good to know; nothing is missing.
        Info = "info",
        /// Something is seen less well than it could be.
        Degraded = "degraded",
        /// Data is missing that should be here.
        Loss = "loss",
    }
}

labels! {
    /// What kind of thing a diagnostic reports.
    pub enum DiagKind {
        /// Which backend was taken and why not a better one.
        Backend = "backend",
        /// Events that the kernel could not hand over.
        LostEvents = "lost_events",
        /// Events that arrived but could not be decoded.
        UndecodedEvents = "undecoded_events",
        /// A probe or a feature that this kernel does not offer.
        Unavailable = "unavailable",
        /// A read that was refused.
        Permission = "permission",
        /// What polling cannot see.
        PollingLimit = "polling_limit",
        /// More of a kind than memtrace follows.
        Limit = "limit",
        /// What programs reported of themselves and the kernel contradicts; it is left out.
        RefusedClaims = "refused_claims",
        /// The recorder slowed down to keep its budget.
        BackOff = "back_off",
        /// The recording could not be written in full.
        Storage = "storage",
        /// The recording was closed after the recorder died or could write no more; what came after this row's time is missing.
        Recovered = "recovered",
    }
}
