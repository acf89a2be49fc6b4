//! Which of several processes wrote a trace, by its name: for traces that do not say so themselves.

/// Where a rank is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RankSource {
    /// `distributedInfo` in the trace.
    Trace,
    /// The name of its file.
    FileName,
}

/// What stands before the number, in the order of how much it says: vLLM (`dp0_pp0_tp1_rank1`),
/// SGLang (`-TP-1`), older vLLM.
const BEFORE: [&str; 4] = ["rank", "tp-", "tp", "profiler_out_"];
/// The same, at the beginning of the name only: hosts are called so too.
const WORKER: &str = "worker";

/// The rank in the name of a file.
pub(super) fn of_name(name: &str) -> Option<u32> {
    let name = name.to_ascii_lowercase();
    let anywhere = BEFORE.iter().find_map(|before| {
        let mut places = name.match_indices(before);
        places.find_map(|(place, _)| {
            let is_word = !name[..place].ends_with(|c: char| c.is_ascii_alphabetic());
            number(&name[place + before.len()..]).filter(|_| is_word)
        })
    });
    let worker = || {
        let after = name.strip_prefix(WORKER)?;
        number(after).filter(|_| !has_pid_and_time(after))
    };
    anywhere.or_else(worker)
}

/// The number at the beginning, behind what parts it from a word.
fn number(text: &str) -> Option<u32> {
    let (number, _) = digits(text.trim_start_matches(['-', '_', '.']));
    number.parse().ok()
}

/// Whether `_<pid>.<time>` is in it, which torch puts behind the name of a host.
fn has_pid_and_time(text: &str) -> bool {
    text.match_indices('_').any(|(place, _)| {
        let (pid, after) = digits(&text[place + 1..]);
        let is_time = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        !pid.is_empty() && after.strip_prefix('.').is_some_and(is_time)
    })
}

/// The digits at the beginning, and what is behind them.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit());
    text.split_at(end.unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_trainers_name_ranks_in_their_own_ways() {
        let cases = [
            (
                "dp0_pp0_tp1_dcp0_ep1_rank3.1763888000.pt.trace.json.gz",
                Some(3),
            ),
            ("rank0.1.pt.trace.json.gz", Some(0)),
            ("node7_rank-12.json", Some(12)),
            ("1763888000.123-TP-5.trace.json.gz", Some(5)),
            ("profiler_out_2.json", Some(2)),
            ("worker_4.pt.trace.json", Some(4)),
            ("host_7.async_llm.1763888000.pt.trace.json.gz", None),
            ("http_9.json", None),
            ("gpu-node-7_4711.1763888000.pt.trace.json", None),
            ("ray-worker-7_4711.1763888000.pt.trace.json", None),
            ("worker-7_4711.1763888000.pt.trace.json", None),
            ("worker_4711.1763888000.pt.trace.json", None),
            ("worker-3.1763888000.pt.trace.json", Some(3)),
            ("big-worker-3.json", None),
        ];
        for (name, rank) in cases {
            assert_eq!(of_name(name), rank, "{name}");
        }
    }
}
