//! `request`: the requests of a load experiment.

use crate::labels;
use crate::table::table;
use crate::{BootNs, DurationNs, WallNs};

table! {
    /// A request to a serving engine, as its sender saw it: what `memtrace load run` sent while this was recorded, and what `memtrace import requests` took from the file of another load generator. Its condition is a phase of the same name in `mark`.
    pub struct RequestRow in "request" {
        /// Wall-clock time (UTC) of its end.
        ts: WallNs,
        /// Its end on CLOCK_BOOTTIME: the last byte of the answer, or when it failed.
        boot_ns: BootNs,
        /// The run of a plan that it is of; of an imported one the load generator and its file.
        load_run: String,
        /// The condition that it is of.
        condition: String,
        /// Its number within the condition, from 0; of an imported one its place in the file.
        request: i64,
        /// 0 the first time it is sent, and one more each time that it is sent again after a failure.
        attempt: i64,
        /// When it was sent, on CLOCK_BOOTTIME.
        start_boot_ns: BootNs,
        /// When the first text of the answer came, on CLOCK_BOOTTIME; null where none came, and of an answer in one piece.
        first_token_boot_ns: Option<BootNs>,
        /// Tokens that the prompt should have; null where its sender reported none.
        planned_prompt_tokens: Option<i64>,
        /// Tokens that it had: as the server counted, null where it did not say.
        prompt_tokens: Option<i64>,
        /// Tokens that were asked for; null where its sender reported none.
        planned_output_tokens: Option<i64>,
        /// Tokens that came: as the server counted, else the pieces of text; null where none is known.
        output_tokens: Option<i64>,
        /// The HTTP status; null where it came to none.
        http_status: Option<i32>,
        /// What became of it.
        outcome: Option<RequestOutcome>,
        /// Why it failed, in words; null where it did not.
        error: Option<String>,
        /// By how much its three times may be wrong, because they were reported on another clock and brought to this one by the table `clock`; null where they were reported on this one.
        time_error_ns: Option<DurationNs>,
    }
}

labels! {
    /// What became of a request.
    pub enum RequestOutcome {
        /// It was answered to the end.
        Ok = "ok",
        /// The server took no connection.
        NotConnected = "not_connected" | "not connected",
        /// The server refused it, or reported an error within the answer.
        Refused = "refused",
        /// The answer did not come in time, or did not end.
        TimedOut = "timed_out" | "timed out",
        /// The connection broke.
        Broken = "broken",
        /// The stream of the answer ended too early.
        Cut = "cut" | "cut off",
        /// The answer is not what such a server answers.
        Malformed = "malformed",
        /// The run was ended meanwhile.
        Interrupted = "interrupted",
        /// It failed in a way that its sender did not tell.
        Failed = "failed",
    }
}
