//! What a line says of its writer, in front of the text that a rule looks for.
//!
//! vLLM: `(EngineCore pid=20042) INFO …`. Ray, around that of others: `(Trainer pid=4711)`,
//! with `, ip=10.0.0.3` when it is of another machine. SGLang: `[2026-01-30 20:54:50 PP1 TP0]`.
//! torchrun: `[rank3]:`, `[default3]:`. Before these can stand what whoever passes the log on
//! adds: `docker compose`, `kubectl logs --prefix`, journald, `srun --label`, a date; and a progress
//! bar, which has no line of its own.
//!
//! Where it is not certain who wrote a line, that is said: such a line pairs with nothing.

use memtrace_model::Tgid;
use regex::bytes::Regex;
use std::sync::LazyLock;

/// No more of what stands before a rule's text is looked at, from its front and from its end.
const HEAD_BYTES_MAX: usize = 1024;

/// A process in parentheses: vLLM's and Ray's, of which the latter can have a call for a name.
const PROCESS: &str = r"\((?<name>(?:[^\s()]{0,64}(?:\([^()]{0,64}\)[^\s()]{0,16})? ){0,6}?)pid=(?<pid>\d+)(?<more>[^()]{0,64})\)";

/// What can stand in front of an identity, or is one. `source` names whose output it is.
static PREFIX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let date = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,:+Z-]*";
    let short_date = r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d[\d.]*";
    let unit_date = r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d:\d\d[\d.]* [A-Z]{2,5}";
    let journal = r" (?<source>[\w.-]+ [^\s\[\]]+\[\d+\]): ";
    let compose = r"(?<container>[a-z0-9][a-z0-9_.@-]*) *\|(?: |$)";
    let pod = r"\[(?<pod>pod/[^\]\s]+)\]";
    // `srun --label`, and `mpirun --tag-output`.
    let task = r"(?<task>\d+): |\[(?<process>\d+,\d+)\](?:<std(?:out|err)>)?:";
    // In the files of Kubernetes, and of Docker.
    let file = r#"(?<file>std(?:out|err) [FP] |\{"log":")"#;
    let gpu = r"\[(?<gpu>gpu_id=\d+)\]";
    let torchrun = r"\[(?:rank|default)(?<rank>\d+)\]:?";
    let ranks = format!(r"\[(?:{date})?(?<ranks>(?: ?[A-Z][A-Z_]*\d+)*)\]");
    let prefixes = [
        &format!("(?:{date}|{short_date}|{unit_date}){journal}"),
        date,
        short_date,
        compose,
        pod,
        task,
        file,
        PROCESS,
        gpu,
        torchrun,
        &ranks,
    ];
    Regex::new(&format!("(?-u)^(?:{})", prefixes.join("|"))).ok()
});

/// Where an identity can begin behind something else, as a progress bar.
static IDENTITY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let others = r"\[\d{4}-\d\d-\d\d[T ][^\]]{0,64}\]|\[(?:rank|default)\d+\]:|\[gpu_id=\d+\]";
    Regex::new(&format!("(?-u){PROCESS}|{others}")).ok()
});

/// How a record begins behind the identity.
static RECORD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let levels = "DEBUG|INFO|WARNING|ERROR|CRITICAL";
    Regex::new(&format!(r"(?-u)^(?:{levels})\b|^\d{{4}}-\d\d-\d\d[T ]")).ok()
});

/// Part of a progress bar (tqdm): `50%|███ | 1/2 [00:01<00:01,  1.31it/s]`.
static BAR: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)\d%[^|]{0,24}\||[\d?](?:it/s|s/it)").ok());

/// A time: of day, in seconds since some beginning, or with a part of a second that no address has.
static TIME: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?-u)\d:\d\d\b|\d{9,}|\d\.\d{4,}").ok());

/// What vLLM calls its processes in front of their lines, by which starts which. What a process was
/// forked with stands in front of its own: `(EngineCore_0 pid=15) (VllmWorker TP0 pid=20) INFO`.
static OF_VLLM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let levels =
        "(A(?:PI|pi)Server|DPCoordinator)|(EngineCore)|(Worker|VllmWorker|VllmWorkerProcess)";
    Regex::new(&format!("(?-u)^(?:{levels})(?:[_ -].*)?$")).ok()
});

/// Whose a line is, as far as it says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Who {
    /// Whose output it is part of, as who passed it on writes in front of it.
    pub(super) source: Option<String>,
    pub(super) tgid: Option<Tgid>,
    /// Whether the process is on another machine, so that its id says nothing here.
    pub(super) is_elsewhere: bool,
    /// Whether the process is in a container: its id is most likely one of that.
    pub(super) is_inside: bool,
    /// Its rank, as it is written.
    pub(super) rank: Option<String>,
    /// Whether somebody wrote it of whom this does not tell who that is.
    pub(super) is_unsure: bool,
    /// What unknown text stands in front of its writer's name, and can tell whose process that is.
    /// It is empty if it has a time in it, and so is not the same in each line.
    pub(super) behind: Option<String>,
}

/// What stands at the front of a text, and what comes behind it.
#[derive(Default)]
struct Front<'a> {
    sources: Vec<String>,
    is_inside: bool,
    /// Names and ids, the outermost first.
    processes: Vec<(&'a [u8], Tgid)>,
    is_elsewhere: bool,
    ranks: Vec<String>,
    rest: &'a [u8],
    /// Of the text, from the first of these on.
    length: usize,
}

impl Who {
    /// `before` is what of the line a carriage return has overwritten, `head` what stands
    /// between that and the text of a rule.
    pub(super) fn of(before: &[u8], head: &[u8]) -> Self {
        let before = Front::of(before);
        let mut front = Front::of(&head[..head.len().min(HEAD_BYTES_MAX)]);
        let tail = &head[head.len().saturating_sub(HEAD_BYTES_MAX)..];
        let rest = match head.len() <= HEAD_BYTES_MAX {
            true => front.rest,
            false => tail,
        };
        let mut is_unsure = false;
        let mut unknown = None;
        let is_bar = fits(&BAR, rest);
        match later(rest) {
            Later::None => is_unsure |= is_bar && front.is_somebody(),
            Later::Said => is_unsure |= is_bar || !front.is_somebody(),
            // Behind a progress bar, which somebody else can have written.
            Later::Is(behind) => {
                let text = &rest[..rest.len() - behind.length];
                unknown = (!is_bar).then(|| match fits(&TIME, text) {
                    true => String::new(),
                    false => String::from_utf8_lossy(text.trim_ascii()).into_owned(),
                });
                front.is_elsewhere |= behind.is_elsewhere;
                front.processes = behind.processes;
                front.ranks = behind.ranks;
            }
        }
        is_unsure |= before.is_somebody() && !front.is_somebody();
        is_unsure |= front.is_torn();
        let mut sources = before.sources;
        sources.extend(front.sources);
        Self {
            source: (!sources.is_empty()).then(|| sources.join(" ")),
            tgid: front.processes.last().map(|(_, tgid)| *tgid),
            is_elsewhere: front.is_elsewhere || before.is_elsewhere,
            is_inside: front.is_inside || before.is_inside,
            rank: (!front.ranks.is_empty()).then(|| front.ranks.join(" ")),
            is_unsure,
            behind: unknown,
        }
    }

    /// Whether several processes can have written such lines under this name.
    pub(super) fn is_shared(&self) -> bool {
        self.tgid.is_none() || self.is_behind_a_time()
    }

    /// Whether unknown text with a time in it stands in front: several processes can have this name.
    pub(super) fn is_behind_a_time(&self) -> bool {
        self.behind.as_deref() == Some("")
    }

    /// What tells it apart in its log: a process is known without its GPU, which not all of its
    /// lines have. A rank can be one of several below the process that Ray names.
    pub(super) fn identity(&self) -> Self {
        let is_part = |word: &&str| self.tgid.is_none() || !word.starts_with("gpu_id=");
        let words = self.rank.iter().flat_map(|rank| rank.split(' '));
        let words: Vec<&str> = words.filter(is_part).collect();
        let rank = (!words.is_empty()).then(|| words.join(" "));
        Self {
            rank,
            ..self.clone()
        }
    }

    /// The process, where it is one of this machine with the id that it has here.
    pub(super) fn here(&self) -> Option<Tgid> {
        self.named().filter(|_| !self.is_inside)
    }

    /// The process, where it is one of this machine, by the id that it has here or inside.
    pub(super) fn named(&self) -> Option<Tgid> {
        self.tgid.filter(|_| !self.is_elsewhere && !self.is_unsure)
    }
}

/// What is said of a process behind the front of a line.
enum Later<'a> {
    None,
    /// Something, but it is not in front of the record.
    Said,
    Is(Front<'a>),
}

fn later(rest: &[u8]) -> Later<'_> {
    let Some(identity) = IDENTITY.as_ref() else {
        return Later::None;
    };
    let mut found = Later::None;
    let mut from = 0;
    while let Some(at) = identity.find_at(rest, from) {
        let front = Front::of(&rest[at.start()..]);
        let is_front = front.is_somebody() && front.is_before_a_record();
        from = rest.len() - front.rest.len();
        from = from.max(at.end());
        found = match is_front {
            true => Later::Is(front),
            false => match found {
                // A date alone is nobody.
                _ if !front.is_somebody() => found,
                Later::Is(_) | Later::None | Later::Said => Later::Said,
            },
        };
    }
    found
}

fn fits(pattern: &Option<Regex>, text: &[u8]) -> bool {
    pattern
        .as_ref()
        .is_some_and(|pattern| pattern.is_match(text))
}

impl<'a> Front<'a> {
    fn of(text: &'a [u8]) -> Self {
        let mut front = Self {
            length: text.len(),
            ..Self::default()
        };
        let mut rest = text;
        loop {
            rest = rest.trim_ascii_start();
            let Some(found) = PREFIX.as_ref().and_then(|prefix| prefix.captures(rest)) else {
                break;
            };
            let length = found.get(0).map_or(0, |whole| whole.len());
            if length == 0 {
                break;
            }
            let text = |name: &str| {
                let group = found.name(name)?;
                Some(String::from_utf8_lossy(group.as_bytes()).into_owned())
            };
            for name in ["source", "container", "pod", "task", "process"] {
                front.sources.extend(text(name));
            }
            let inside = ["container", "pod", "file"].into_iter();
            front.is_inside |= inside.filter_map(|name| found.name(name)).count() > 0;
            if let Some(pid) = found.name("pid") {
                let Some(pid) = number(pid.as_bytes()) else {
                    break;
                };
                let name = found
                    .name("name")
                    .map_or(&b""[..], |name| rest[name.range()].trim_ascii_end());
                let more = found.name("more").map_or(&b""[..], |more| more.as_bytes());
                front.is_elsewhere |= memchr::memmem::find(more, b" ip=").is_some();
                front.processes.push((name, Tgid(pid)));
            }
            front
                .ranks
                .extend(text("gpu").into_iter().chain(text("rank")));
            let ranks = text("ranks").unwrap_or_default();
            let ranks = ranks.trim();
            front
                .ranks
                .extend((!ranks.is_empty()).then(|| ranks.to_owned()));
            rest = &rest[length..];
        }
        front.rest = rest;
        front
    }

    fn is_somebody(&self) -> bool {
        !self.processes.is_empty() || !self.ranks.is_empty()
    }

    /// Whether what comes behind is a record, or the text of a rule at once.
    fn is_before_a_record(&self) -> bool {
        // SGLang's date is the front of its record.
        self.rest.is_empty() || fits(&RECORD, self.rest) || self.processes.is_empty()
    }

    /// Whether two processes wrote into one line: neither of two names of vLLM started the other.
    fn is_torn(&self) -> bool {
        let of_vllm = self.processes.iter().filter_map(|(name, tgid)| {
            let level = OF_VLLM.as_ref()?.captures(name)?;
            let level = (1..level.len()).find(|&group| level.get(group).is_some())?;
            Some((level, tgid))
        });
        let of_vllm: Vec<(usize, &Tgid)> = of_vllm.collect();
        let is_within = |two: &[(usize, &Tgid)]| two[0].1 == two[1].1 || two[0].0 < two[1].0;
        !of_vllm.windows(2).all(is_within)
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(tgid: Option<u32>, is_elsewhere: bool) -> Who {
        Who {
            tgid: tgid.map(Tgid),
            is_elsewhere,
            ..Who::default()
        }
    }

    #[test]
    fn the_innermost_process_of_a_line_is_its_writer() {
        let cases = [
            ("(Worker pid=20113) INFO 11-21 x", who(Some(20113), false)),
            ("(VllmWorker-0 pid=7) INFO x", who(Some(7), false)),
            ("(VllmWorker rank=1 pid=7) INFO x", who(Some(7), false)),
            ("(VllmWorker TP0 pid=7) INFO x", who(Some(7), false)),
            ("(pid=12) x", who(Some(12), false)),
            (
                "(Engine pid=12) (EngineCore_DP0 pid=34) INFO x",
                who(Some(34), false),
            ),
            (
                "(Engine pid=12, ip=10.0.0.3) (EngineCore pid=34) INFO x",
                who(Some(34), true),
            ),
            (
                "(EngineCore_0 pid=15) (VllmWorker TP0 pid=20) INFO x",
                who(Some(20), false),
            ),
            (
                "(EngineCore pid=6) (RayWorkerProc pid=9) (Worker_TP0 pid=9) INFO x",
                who(Some(9), false),
            ),
            ("(raylet) Spilled", Who::default()),
            ("INFO:     Application startup complete.", Who::default()),
            ("(pid=", Who::default()),
            ("", Who::default()),
        ];
        for (line, expected) in cases {
            assert_eq!(Who::of(b"", line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_rank_is_reported_as_it_is_written() {
        let cases = [
            ("[2025-10-16 09:06:09 TP7] Init", Some("TP7")),
            ("[2026-01-30 20:54:50 PP1 TP0] Load", Some("PP1 TP0")),
            ("[2026-07-27 08:54:44] The server", None),
            ("[rank3]: Traceback", Some("3")),
            ("[default0]:epoch 1", Some("0")),
            ("[default] Starting worker group", None),
            ("[gpu_id=3] Load", Some("gpu_id=3")),
            ("(Engine pid=4) [2025-10-16 09:06:09 TP1] x", Some("TP1")),
        ];
        for (line, expected) in cases {
            let who = Who::of(b"", line.as_bytes());
            assert_eq!(who.rank.as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn what_passes_a_log_on_hides_nobody() {
        const W: &str = "(Worker_TP1 pid=7) INFO 05-06 20:59:28 [m.py:1] ";
        let bar =
            "Loading safetensors checkpoint shards:  50%|███   | 1/2 [00:01<00:01,  1.31it/s]";
        let cases = [
            (format!("vllm-1  | {W}"), Some("vllm-1"), true),
            (
                format!("[pod/vllm-0/server] {W}"),
                Some("pod/vllm-0/server"),
                true,
            ),
            (format!("2026-11-26T12:00:00.123456789Z {W}"), None, false),
            (format!("2026-11-26 12:00:00,123 {W}"), None, false),
            (format!("[2026-08-21T19:42:37Z] {W}"), None, false),
            (
                format!("Nov 26 12:00:00 host vllm.service[71]: {W}"),
                Some("host vllm.service[71]"),
                false,
            ),
            (
                format!("2026-11-26T12:00:00+0000 host bash[71]: {W}"),
                Some("host bash[71]"),
                false,
            ),
            (format!("1: {W}"), Some("1"), false),
            (format!("[1,0]<stderr>:{W}"), Some("1,0"), false),
            (format!("{bar}{W}"), None, false),
            (format!("(Worker_TP0 pid=6) {bar}{W}"), None, false),
            (format!("vllm-1  | {bar} {W}"), Some("vllm-1"), true),
        ];
        for (head, source, is_inside) in cases {
            let who = Who::of(b"", head.as_bytes());
            assert_eq!(who.tgid, Some(Tgid(7)), "{head}");
            assert_eq!(who.source.as_deref(), source, "{head}");
            assert_eq!(who.is_inside, is_inside, "{head}");
            assert!(!who.is_unsure, "{head}");
        }
        for (before, is_shared) in [("vllm-0 server ", false), ("node 12:00:01 ", true)] {
            let who = Who::of(b"", format!("{before}{W}").as_bytes());
            assert_eq!((who.tgid, who.is_shared()), (Some(Tgid(7)), is_shared));
            assert!(who.behind.is_some());
        }
        for before in ["2026-11-26T12:00:00.1Z stderr F ", "{\"log\":\""] {
            let who = Who::of(b"", format!("{before}{W}").as_bytes());
            assert_eq!((who.is_inside, who.behind), (true, None), "{before}");
        }
        let gpu = Who::of(b"", format!("[gpu_id=1] {W}").as_bytes());
        assert_eq!(
            (gpu.tgid, gpu.rank.as_deref()),
            (Some(Tgid(7)), Some("gpu_id=1"))
        );
        let overwritten = Who::of(
            format!("vllm-1 | (Worker pid=6) {bar}").as_bytes(),
            W.as_bytes(),
        );
        assert_eq!(
            (overwritten.tgid, overwritten.is_unsure),
            (Some(Tgid(7)), false)
        );
        assert_eq!(overwritten.source.as_deref(), Some("vllm-1"));
    }

    #[test]
    fn where_it_is_not_sure_who_wrote_a_line_that_is_said() {
        let bar = "Loading: 50%|███   | 1/2 [00:01<00:01,  1.31it/s]";
        let cases = [
            // Two processes at once, each with a write of its own for its name.
            ("", "(Worker_TP0 pid=6) (Worker_TP1 pid=7) INFO ".to_owned()),
            ("", "(Worker_TP1 pid=7) (EngineCore pid=6) INFO ".to_owned()),
            // Somebody's bar, and a record without a name behind it.
            ("", format!("(Worker_TP0 pid=6) {bar}INFO 05-06 ")),
            ("(Worker_TP0 pid=6) Loading: 0%", "INFO 05-06 ".to_owned()),
            ("", "said (pid=3) behind ".to_owned()),
        ];
        for (before, head) in cases {
            let who = Who::of(before.as_bytes(), head.as_bytes());
            assert!(who.is_unsure, "{before:?} {head:?} {who:?}");
            assert_eq!(who.named(), None);
        }
    }
}
