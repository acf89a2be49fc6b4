//! Starts of releases of vLLM and SGLang, as their logs have them, behind what launchers put in
//! front of each line: each phase goes with its own process, or with none.
//!
//! Messages are those of the sources named beside them; times and sizes are made up so that the
//! second rank begins first and ends last, and whoever swaps the ranks is wrong by seconds.

mod starts;

use super::rules::{LineMark, Matcher, Rules};
use memtrace_model::{BootNs, END_IS_UNKNOWN, MarkKind, MarkRuleKind, builtin_mark_rules};
use regex::Regex;
use starts::{Line, STARTS};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, LazyLock};

const BAR: &str =
    "Loading safetensors checkpoint shards:  50%|█████     | 1/2 [00:01<00:01,  1.31it/s]";

/// How Docker ends a line in its file.
const DOCKERS: &str = r#"\n","stream":"stderr","time":"2026-11-26T12:00:00.123456789Z"}"#;

/// What comes before each line, and what a launcher puts there.
fn launchers() -> Vec<(&'static str, String)> {
    [
        ("nothing", ""),
        ("docker compose", "vllm-1  | "),
        (
            "docker compose with a date",
            "vllm-1  | 2026-11-26T12:00:00.123456789Z ",
        ),
        ("docker swarm", "llm_vllm.1.x7k2@node3    | "),
        ("kubectl logs --prefix", "[pod/vllm-0/server] "),
        (
            "kubectl logs --timestamps",
            "2026-11-26T12:00:00.123456789Z ",
        ),
        ("journald", "Nov 26 12:00:00 host vllm.service[71]: "),
        (
            "journald, ISO",
            "2026-11-26T12:00:00+0000 host docker[71]: ",
        ),
        (
            "journald, with-unit",
            "Thu 2026-11-26 12:00:00 UTC host vllm.service[71]: ",
        ),
        (
            "the files of Kubernetes",
            "2026-11-26T12:00:00.123456789Z stderr F ",
        ),
        ("stern", "vllm-0 server "),
        ("srun --label", "0: "),
        ("mpirun --tag-output", "[1,0]<stderr>:"),
        ("Docker's files", r#"{"log":""#),
        ("a date", "2026-11-26 12:00:00,123 "),
        ("a date in brackets", "[2026-11-26T12:00:00Z] "),
        ("a GPU", "[gpu_id=0] "),
        ("what nobody knows", "node7>> "),
        ("a time that nobody knows", "node7 12:00:01> "),
        ("Ray", "(Server pid=500) "),
        ("a terminal, in colours", "{COLOUR}"),
        ("docker compose on a terminal", "vllm-1  | {COLOUR}"),
        ("a terminal, its ends of lines", "{CR}"),
        ("a progress bar", "{BAR}"),
        ("a progress bar overwritten", "{BAR}\r"),
        ("compose and a bar overwritten", "vllm-1  | {BAR}\r"),
    ]
    .map(|(name, before)| (name, before.replace("{BAR}", BAR)))
    .to_vec()
}

fn read(lines: &[(i64, String)]) -> (Vec<LineMark>, Option<String>) {
    static RULES: LazyLock<Arc<Rules>> =
        LazyLock::new(|| Arc::new(Rules::new(builtin_mark_rules().unwrap()).unwrap()));
    let mut matcher = Matcher::new(Arc::clone(&RULES), None);
    let mut marks = Vec::new();
    for (at, line) in lines {
        let text = format!("{line}\n");
        // Took phases begin in the past.
        let at = BootNs((at + 10_000) * 100_000_000);
        matcher.look_at(text.as_bytes(), at, |mark| marks.push(mark));
    }
    (marks, matcher.take_unchecked())
}

fn behind(before: &str, lines: &[Line]) -> Vec<(i64, String)> {
    let lines = lines.iter();
    lines
        .map(|(at, line)| match before.strip_suffix("{COLOUR}") {
            Some(before) => (*at, format!("{before}{}", coloured(line))),
            None if before == "{CR}" => (*at, format!("{line}\r")),
            None if before.starts_with('{') => (*at, format!("{before}{line}{DOCKERS}")),
            None => (*at, format!("{before}{line}")),
        })
        .collect()
}

/// A process in front of a line.
static NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\((?:[\w=]+ )*pid=(?<pid>\d+)\)").unwrap());

/// As vLLM and Ray write a name to a terminal (vllm/utils/system_utils.py:211).
fn coloured(line: &str) -> String {
    let name = "\u{1b}[1;36m$0\u{1b}[0;0m";
    NAME.replace_all(line, name).into_owned()
}

/// Its name, whose it is, and when it began and ended.
type Found = (String, String, i64, i64);

/// The phases that begin with one line and end with another, the names of those that are open,
/// and of those that are over.
fn paired(marks: &[LineMark]) -> (Vec<Found>, Vec<String>, HashSet<String>) {
    static BEGUN: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let rules = builtin_mark_rules().unwrap().into_iter();
        let begins = rules.filter(|rule| rule.kind == MarkRuleKind::Begin);
        begins.map(|rule| rule.name).collect()
    });
    let mut open = BTreeMap::new();
    let (mut paired, mut over) = (Vec::new(), HashSet::new());
    for mark in marks {
        let message = &mark.message;
        if !BEGUN.contains(&message.name) {
            continue;
        }
        let at = message.boot_ns / 100_000_000 - 10_000;
        let rank = message.attrs.get("rank").and_then(|rank| rank.as_str());
        let rank = rank.unwrap_or_default().replace("gpu_id=0", "");
        let who = mark
            .tgid
            .map_or_else(|| rank.trim().to_owned(), |tgid| tgid.0.to_string());
        match mark.kind {
            MarkKind::Begin => {
                open.insert(message.span, (message.name.clone(), who, at));
            }
            MarkKind::End => {
                if let Some((name, who, begin)) = open.remove(&message.span) {
                    paired.push((name, who, begin, at));
                }
            }
            _ if message.attrs.contains_key(END_IS_UNKNOWN) => {
                over.insert(message.name.clone());
            }
            _ => {}
        }
    }
    paired.sort();
    let open = open.into_values().map(|(name, ..)| name);
    let mut open: Vec<String> = open.collect();
    open.sort();
    (paired, open, over)
}

#[test]
fn each_phase_of_each_release_goes_with_its_own_process_whatever_passes_its_log_on() {
    let mut count = 0;
    for start in STARTS {
        for (launcher, before) in launchers() {
            let (marks, _) = read(&behind(&before, start.lines));
            let (found, open, over) = paired(&marks);
            let mut expected: Vec<(String, String, i64, i64)> = start
                .paired
                .iter()
                .map(|(name, who, begin, end)| {
                    // Ray says who has no name of its own.
                    let who = match (launcher, who.parse::<u32>()) {
                        ("Ray", Err(_)) => "500",
                        _ => who,
                    };
                    ((*name).to_owned(), who.to_owned(), *begin, *end)
                })
                .collect();
            expected.sort();
            count += 1;
            if launcher == "a time that nobody knows" {
                // What a line of another phase ends is not certain there.
                expected.retain(|phase| found.contains(phase));
                assert_eq!(found, expected, "{} behind {launcher}", start.of);
                continue;
            }
            assert_eq!(found, expected, "{} behind {launcher}", start.of);
            assert_eq!(open, start.open, "{} behind {launcher}", start.of);
            assert!(open.iter().all(|name| over.contains(name)), "{}", start.of);
        }
    }
    assert!(count > 600, "{count}");
}

#[test]
fn every_mark_of_each_release_has_its_own_process_whatever_passes_its_log_on() {
    for start in STARTS {
        for (launcher, before) in launchers() {
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            for line in start.lines {
                let names = NAME.captures_iter(line.1);
                let own = names.last().map(|name| name["pid"].to_owned());
                let own = own.or_else(|| (launcher == "Ray").then(|| "500".to_owned()));
                for mark in read(&behind("", &[*line])).0 {
                    expected.push((mark.message.name, own.clone()));
                }
                for mark in read(&behind(&before, &[*line])).0 {
                    found.push((mark.message.name, mark.tgid.map(|tgid| tgid.to_string())));
                }
            }
            assert_eq!(found, expected, "{} behind {launcher}", start.of);
        }
    }
}

#[test]
fn lines_of_several_containers_pair_within_their_own() {
    let first: &[Line] = STARTS[1].lines;
    let mut lines = behind("vllm-1  | ", first);
    let later = behind("vllm-2  | ", first).into_iter();
    lines.extend(later.map(|(at, line)| (at + 7, line)));
    lines.sort();
    let (found, open, _) = paired(&read(&lines).0);
    let load = |begin, end| ("vllm.load_model".to_owned(), String::new(), begin, end);
    let init = |begin, end| ("vllm.engine_init".to_owned(), String::new(), begin, end);
    assert_eq!(
        found,
        [init(0, 96), init(7, 103), load(10, 30), load(17, 37)]
    );
    assert_eq!(open, [""; 0]);
}

#[test]
fn lines_of_two_servers_pair_within_their_own_or_not_at_all() {
    let two = [
        ["vllm-1  | ", "vllm-2  | "],
        ["[pod/vllm-0/server] ", "[pod/vllm-1/server] "],
        ["vllm-0 server ", "vllm-1 server "],
        ["0: ", "1: "],
        ["node7 12:00:01> ", "node8 12:00:01> "],
        ["[1,0]<stderr>:", "[1,1]<stderr>:"],
        [
            "Nov 26 12:00:00 host a.service[71]: ",
            "Nov 26 12:00:00 host b.service[72]: ",
        ],
    ];
    type Time = fn(i64) -> i64;
    // The second one begins later, and ends later or sooner.
    let times: [[Time; 2]; 2] = [[|at| at, |at| at + 7], [|at| at * 3, |at| at + 7]];
    for start in STARTS {
        for (befores, times) in two
            .into_iter()
            .flat_map(|two| times.map(|times| (two, times)))
        {
            let mut lines = Vec::new();
            let mut expected = Vec::new();
            for (before, time) in befores.into_iter().zip(times) {
                let own = behind(before, start.lines).into_iter();
                lines.extend(own.map(|(at, line)| (time(at), line)));
                let own = start.paired.iter();
                expected.extend(own.map(|(name, _, from, to)| (*name, time(*from), time(*to))));
            }
            lines.sort_by_key(|(at, _)| *at);
            let found = paired(&read(&lines).0).0;
            for (name, who, begin, end) in &found {
                assert!(
                    expected.contains(&(name.as_str(), *begin, *end)),
                    "{} behind {befores:?}: {name} of {who:?}, {begin} to {end}",
                    start.of
                );
            }
            // Text that no launcher is known to write tells only part of the lines apart.
            if !["node7 12:00:01> ", "vllm-0 server "].contains(&befores[0]) {
                assert_eq!(found.len(), expected.len(), "{} {befores:?}", start.of);
            }
        }
    }
}

#[test]
fn a_name_behind_a_time_pairs_with_nothing_where_two_servers_have_it() {
    let begin = "(EngineCore pid=522) INFO 07-08 10:00:01 [model_runner.py:170] Loading model from scratch...";
    let end = "(EngineCore pid=522) INFO 07-08 10:00:03 [model_runner.py:180] Model loading took 2.3 GiB and \
        2.0 seconds";
    for [one, other] in [
        ["node7 12:00:01> ", "node8 12:00:02> "],
        ["1764201600.123 ", "1764201601.5 "],
    ] {
        let lines = [
            (1, one, begin),
            (2, other, begin),
            (30, other, end),
            (40, one, end),
        ];
        let lines = lines.map(|(at, before, line)| (at, format!("{before}{line}")));
        let (found, ..) = paired(&read(&lines).0);
        assert_eq!(found, [], "{one}");
    }
}

#[test]
fn what_several_processes_without_a_name_begin_at_once_pairs_with_nothing() {
    let begin = "INFO 07-08 10:00:01 [gpu_model_runner.py:1770] Starting to load model m...";
    let end =
        "INFO 07-08 10:00:03 [gpu_model_runner.py:1801] Model loading took 2.3 GiB and 2.0 seconds";
    let (marks, _) = read(&behind("", &[(1, begin), (2, begin), (30, end), (45, end)]));
    let (found, open, over) = paired(&marks);
    assert_eq!((found, open), (vec![], vec!["vllm.load_model".to_owned()]));
    assert!(over.contains("vllm.load_model"));
    let ready = "INFO:     Application startup complete.";
    let again = [(1, begin), (2, begin), (30, ready), (40, begin), (45, end)];
    let (found, ..) = paired(&read(&behind("", &again)).0);
    assert_eq!(found.len(), 1, "they are over: {found:?}");
    // One whose end never came is over, and the next of its name is not taken for another's.
    let ready_twice = [(1, begin), (30, ready), (31, ready), (40, begin), (45, end)];
    let (marks, _) = read(&behind("", &ready_twice));
    let over = marks
        .iter()
        .filter(|mark| mark.message.attrs.contains_key(END_IS_UNKNOWN));
    assert_eq!(over.count(), 1, "said once");
    assert_eq!(paired(&marks).0.len(), 1);
    // Ends that were lost are owed no longer after ten minutes.
    let late = [
        (1, begin),
        (2, begin),
        (30, end),
        (7_000, begin),
        (7_020, end),
    ];
    let (found, ..) = paired(&read(&behind("", &late)).0);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn an_end_whose_writer_is_not_sure_closes_nothing() {
    let begin = "(Worker_TP0 pid=31) INFO 05-06 20:59:28 [m.py:1] Starting to load model m...";
    for end in [
        "(Worker_TP1 pid=32) (Worker_TP0 pid=31) INFO 05-06 [m.py:2] Model loading took 1.0 GiB and 2.0 seconds",
        "(Worker_TP0 pid=31) Loading: 50%|██   | 1/2 [00:01<00:01,  1.3it/s]INFO 05-06 [m.py:2] Model loading took 1.0 GiB and 2.0 seconds",
        "(Worker_TP0 pid=31) Loading: 50%\rINFO 05-06 [m.py:2] Model loading took 1.0 GiB and 2.0 seconds",
    ] {
        let (found, open, over) = paired(&read(&behind("", &[(1, begin), (30, end)])).0);
        assert_eq!(found, [], "{end}");
        assert_eq!(open, ["vllm.load_model"], "{end}");
        assert!(over.contains("vllm.load_model"), "it may have ended: {end}");
    }
}

#[test]
fn a_line_that_ray_wrote_for_several_begins_and_ends_nothing() {
    const BEGIN: &str = "INFO 01-30 11:53:41 model_runner.py:1110] Starting to load model m...";
    const END: &str =
        "INFO 01-30 11:53:52 model_runner.py:1115] Loading model weights took 7.51 GB";
    let of = |pid: u32, line: &str, more: &str| {
        format!("(RayWorkerWrapper pid={pid}, ip=10.0.0.9) {line}{more}")
    };
    let repeated = " [repeated 7x across cluster] (Ray deduplicates logs by default.)";
    let lines = [
        (0, BEGIN.to_owned()),
        (1, of(251, BEGIN, "")),
        (50, of(263, BEGIN, repeated)),
        (110, END.to_owned()),
        (112, of(257, END, "")),
        (160, of(263, END, repeated)),
    ];
    let (marks, _) = read(&lines);
    let (found, open, over) = paired(&marks);
    let driver = ("vllm.load_model".to_owned(), String::new(), 0, 110);
    assert_eq!(found, [driver], "whose lines were all seen");
    assert_eq!(
        open,
        ["vllm.load_model"],
        "of 251, which one of eight ended"
    );
    assert!(over.contains("vllm.load_model"));
    let repeated = marks.iter().filter(|mark| {
        let repeated = mark.message.attrs.get("repeated");
        repeated.is_some_and(|count| *count == 7)
    });
    let kinds: Vec<MarkKind> = repeated.map(|mark| mark.kind).collect();
    assert_eq!(kinds, [MarkKind::Instant; 2]);
}

#[test]
fn a_release_that_the_rules_were_not_checked_with_is_said() {
    for start in STARTS {
        let (_, unchecked) = read(&behind("vllm-1  | ", start.lines));
        let is_new = start.of == "vLLM 0.40.0, made up";
        assert_eq!(unchecked.is_some(), is_new, "{}: {unchecked:?}", start.of);
    }
    for (version, is_checked) in [
        ("0.33.1", true),
        ("0.9.2.dev140+g8b6e1d639.d20250618", true),
        ("0.34.0", false),
        ("dev", false),
        ("1.0", false),
    ] {
        let line = format!("INFO core.py:1] Initializing a V1 LLM engine (v{version}) with config");
        let (_, unchecked) = read(&[(0, line)]);
        assert_eq!(unchecked.is_none(), is_checked, "{version}: {unchecked:?}");
    }
}

#[test]
fn the_kv_cache_is_reported_with_its_size_whether_or_not_with_tokens() {
    let sizes = [
        (
            "[2025-01-23 19:35:20 TP0] KV Cache is allocated. K size: 27.13 GB, V size: 27.13 GB.",
            None,
            Some(27.13),
        ),
        (
            "[2025-11-07 10:00:06 TP0] KV Cache is allocated. #tokens: 383872, K size: 9.68 GB, V size: 9.68 GB",
            Some(383_872),
            Some(9.68),
        ),
        (
            "[2026-09-12 00:22:48 TP0] KV Cache is allocated. dtype: torch.float8_e4m3fn, #tokens: 454112, K size: 3.46 GB, V size: 3.46 GB",
            Some(454_112),
            Some(3.46),
        ),
    ];
    for (line, tokens, gb) in sizes {
        let (marks, _) = read(&[(0, line.to_owned())]);
        let attrs = &marks[0].message.attrs;
        assert_eq!(marks[0].message.name, "sglang.kv_cache");
        assert_eq!(
            attrs.get("tokens").and_then(|tokens| tokens.as_i64()),
            tokens,
            "{line}"
        );
        assert_eq!(attrs.get("k_gb").and_then(|gb| gb.as_f64()), gb, "{line}");
    }
}
