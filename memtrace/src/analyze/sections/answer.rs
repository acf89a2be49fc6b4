//! The answer in short, for the first lines of a report: what happened, who held most, what grew,
//! how near the limit was, and what to look at next. It finds nothing itself: what other sections
//! tell at length stands here in a sentence.

use super::abnormal_endings::AbnormalEndings;
use super::{growth, missing, oom_kills, peak, steps};
use crate::analyze::shares::Share;
use crate::analyze::{Analysis, CgroupUse, Composition, Ending, HolderGroup, Verdict, together};
use crate::model::label::labels;
use crate::model::{Bytes, DurationNs, Kind, Label, RunState, Target};
use crate::report::words::{bytes, bytes_or_unknown, count, processes};
use crate::report::{Chapter, Tone, words};
use schemars::JsonSchema;
use serde::Serialize;

/// So long before somebody's end there is still to see who held what.
const BEFORE_END_NS: i64 = 1_000_000_000;

/// A sentence of the answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AnswerLine {
    /// What it is about.
    pub about: Topic,
    /// The sentence, in words of the text report.
    pub text: String,
    /// Whether something is wrong.
    pub is_alarming: bool,
}

labels! {
    /// What a sentence of the answer is about.
    pub enum Topic {
        /// How it ended.
        WhatHappened = "what_happened" | "What happened",
        /// How much was held at most, and who held most of it.
        MostHeld = "most_held" | "Most held",
        /// What grows, and how fast.
        Growth = "growth" | "Growth",
        /// How near a limit was.
        Limit = "limit" | "Limit",
        /// What the recording does not know.
        Missing = "missing" | "Not known",
        /// The command that shows more.
        LookNext = "look_next" | "Look next",
    }
}

/// Says the answer.
pub(super) fn tell(section: &mut Chapter, analysis: &Analysis) {
    for line in lines(analysis) {
        let tone = match (line.about, line.is_alarming) {
            (_, true) => Tone::Alert,
            (Topic::WhatHappened | Topic::MostHeld, _) => Tone::Strong,
            _ => Tone::Plain,
        };
        let text = format!("{}: {}", line.about.shown(), line.text);
        section.tell(tone, [text]);
    }
}

/// The answer, a sentence for each thing that there is to say.
pub(in crate::analyze) fn lines(analysis: &Analysis) -> Vec<AnswerLine> {
    let line = |about| {
        move |text: String| AnswerLine {
            about,
            text,
            is_alarming: false,
        }
    };
    let alarm = |about| {
        move |text: String| AnswerLine {
            about,
            text,
            is_alarming: true,
        }
    };
    let violence = violence(analysis);
    let leak = steps::in_short(analysis);
    let growth = match leak.is_empty() {
        true => growth::in_short(analysis).map(line(Topic::Growth)),
        false => Some(leak.join(" ")).map(alarm(Topic::Growth)),
    };
    let happened = match &violence {
        Some((text, _)) => alarm(Topic::WhatHappened)(text.clone()),
        None => line(Topic::WhatHappened)(ending(analysis)),
    };
    let is_oom_kill = oom_kills::concerning(analysis).next().is_some();
    let limit = limit(analysis).filter(|_| !is_oom_kill);
    let next = look_next(analysis, violence.as_ref().map(|(_, next)| &**next));
    [
        Some(happened),
        most_held(analysis).map(line(Topic::MostHeld)),
        growth,
        limit.map(line(Topic::Limit)),
        missing::in_short(analysis).map(alarm(Topic::Missing)),
        Some(line(Topic::LookNext)(next)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Who was killed, or crashed, and the options of the report that show what led to it.
fn violence(analysis: &Analysis) -> Option<(String, String)> {
    if let Some((told, kill)) = oom_kills::in_short(analysis) {
        return Some((told, at(kill.at.offset_ns)));
    }
    let abnormal = AbnormalEndings::of(analysis);
    let (told, end) = abnormal.in_short(analysis)?;
    // The end itself is told to a tenth of a second, and may be over then.
    let before = end.map(|end| end.offset_ns.0 - BEFORE_END_NS);
    let before = before.filter(|before| *before > 0).map(DurationNs);
    Some((told, before.map(at).unwrap_or_default()))
}

/// How it ended where nobody was killed.
fn ending(analysis: &Analysis) -> String {
    let after = analysis.command_duration().map(words::duration);
    let after = after.map_or_else(String::new, |ran| format!(" after {ran}"));
    let mut told = match (&analysis.info.target, analysis.command_ending()) {
        (_, Some(Ending::Exited(0))) => format!("the command ended well{after}"),
        (_, Some(ending)) => format!("the command failed{after}: {}", ending.shown_in_full()),
        _ if analysis.is_live => "the recording goes on".to_owned(),
        _ if analysis.info.state != RunState::Closed => {
            let end = words::after(analysis.clock.duration());
            format!("the recording was cut off at {end}")
        }
        (Target::Command { .. }, None) => "how the command ended is not known".to_owned(),
        (_, None) => {
            let running = analysis.processes.iter();
            let running = running.filter(|process| process.ending == Ending::Running);
            let (running, all) = (running.count(), analysis.processes.len());
            let all = processes(all);
            format!(
                "of {all}, {} ran on when the recording ended",
                count(running)
            )
        }
    };
    let outlived = &analysis.leftovers.outlived;
    if !outlived.is_empty() {
        let held = together(outlived.iter().map(|one| one.row.held_bytes()));
        let held = bytes_or_unknown(held);
        let who = processes(outlived.len());
        told.push_str(&format!("; {who} outlived it and held {held}"));
    }
    told + "."
}

/// How much was held at most, when, and who held most of it.
fn most_held(analysis: &Analysis) -> Option<String> {
    let peak = analysis.peak.as_ref()?;
    let mark = match analysis.info.is_polled() {
        true => "at least ",
        false => "",
    };
    let figure = peak::peak_in_words(analysis, peak);
    let when = analysis.clock.when(peak.at);
    let most = most_of_it(analysis, peak).map_or_else(String::new, |most| format!("; {most}"));
    Some(format!("{mark}{figure} at {when}{most}."))
}

/// The role, and the process or those alike, that held most at an instant, and of which kind.
fn most_of_it(analysis: &Analysis, state: &Composition) -> Option<String> {
    let groups = state.groups(&analysis.processes);
    // Of equals the first is taken.
    let held = groups.iter().rev().map(|group| (own(state, group), group));
    let (held, group) = held.max_by_key(|(held, _)| held.sum())?;
    if held.sum().0 == 0 {
        return None;
    }
    let who = match group.who.process_count {
        1 => analysis.with_role(&group.who.who),
        _ => group.who.in_words(),
    };
    let role = several_of_a_role(analysis);
    let role = role.map_or_else(String::new, |role| format!("{role}, "));
    Some(format!("{role}above all {who} with {}", held.in_words()))
}

/// `2 × vLLM worker held 4.1 GiB`: where several of one role held most.
fn several_of_a_role(analysis: &Analysis) -> Option<String> {
    let first = analysis.roles.first().filter(|role| role.role.is_some())?;
    let at_peak = first
        .at_peak
        .as_ref()
        .filter(|at_peak| at_peak.process_count > 1)?;
    let (count, name) = (words::times(at_peak.process_count), &first.name);
    Some(format!(
        "{count} {name} held {}",
        bytes(at_peak.host_bytes()?)
    ))
}

/// Anonymous and shared memory of some processes; RSS where no kinds are known.
#[derive(Default)]
struct HeldBy {
    anon: Bytes,
    shared: Bytes,
    rss: Option<Bytes>,
}

impl HeldBy {
    fn sum(&self) -> Bytes {
        self.rss.unwrap_or(self.anon + self.shared)
    }

    fn in_words(&self) -> String {
        if let Some(rss) = self.rss {
            return format!("{} of RSS", bytes(rss));
        }
        let (kind, largest) = match self.anon >= self.shared {
            true => ("anonymous", self.anon),
            false => ("shared", self.shared),
        };
        let (sum, largest) = (bytes(self.sum()), bytes(largest));
        match sum == largest {
            true => format!("{sum}, {kind}"),
            false => format!("{sum}, of it {largest} {kind}"),
        }
    }
}

/// What some processes held: of what is shared their parts where these are known, else the largest
/// of any one.
fn own(state: &Composition, group: &HolderGroup) -> HeldBy {
    let is_member = |process: usize| group.who.members.contains(&process);
    let shares = state.shares.iter().flatten();
    let mut shares = shares.filter(|share| is_member(share.process)).peekable();
    if shares.peek().is_some() {
        let add = |sum: HeldBy, share: &Share| HeldBy {
            anon: sum.anon + share.anon_bytes.unwrap_or_default(),
            shared: sum.shared + share.shmem_bytes.unwrap_or_default(),
            rss: None,
        };
        return shares.fold(HeldBy::default(), add);
    }
    let members = state
        .holders
        .iter()
        .filter(|holder| is_member(holder.process));
    HeldBy {
        anon: group.totals[Kind::Anon].bytes().unwrap_or_default(),
        shared: members
            .filter_map(|one| one.amounts.shmem())
            .max()
            .unwrap_or_default(),
        rss: match group.totals[Kind::Anon].bytes() {
            Some(_) => None,
            None => group.totals[Kind::Rss].bytes(),
        },
    }
}

/// How near the limit was at the peak, and when it is reached if that goes on.
fn limit(analysis: &Analysis) -> Option<String> {
    let peak = analysis.peak.as_ref()?;
    let use_of = |cgroup: &CgroupUse| {
        let limit = cgroup.effective_limit_bytes?;
        let used = cgroup.row.current_bytes?;
        let (share, path) = (words::share(Some(used), Some(limit)), &cgroup.row.cgroup);
        let (used, limit) = (bytes(used), bytes(limit));
        Some(format!(
            "{used} of the {limit} of cgroup {path} were in use at the peak ({share})"
        ))
    };
    let mut told = match peak.cgroups.first().and_then(use_of) {
        Some(told) => told,
        None => {
            let row = &peak.node.as_ref()?.row;
            let (available, total) = (row.mem_available_bytes?, row.mem_total_bytes?);
            let (available, total) = (bytes(available), bytes(total));
            let none = match peak.cgroups.is_empty() {
                true => "",
                false => "none; ",
            };
            format!("{none}{available} of the machine's {total} were available at the peak")
        }
    };
    if let Some(until) = growth::time_to_limit(analysis) {
        told.push_str(&format!(
            "; at this rate it is full {} later",
            words::duration(until)
        ));
    }
    Some(told + ".")
}

/// The command that shows more, with what it shows.
fn look_next(analysis: &Analysis, violent: Option<&str>) -> String {
    let command = |options: &str| {
        let path = analysis.path.as_deref().map(quoted);
        let path = path.map_or_else(String::new, |path| format!(" {path}"));
        format!("`memtrace report{path} {options}`")
    };
    if let Some(options) = violent.filter(|options| !options.is_empty()) {
        return format!("{} for who held what then.", command(options));
    }
    if let Some(stage) = steps::growing_stage(analysis) {
        return format!("{} for what each role gained.", command(&phase(&stage)));
    }
    let growing = analysis
        .processes
        .iter()
        .filter_map(|process| process.growth);
    let growing = growing.filter(|growth| growth.verdict == Verdict::Growing);
    if let Some(growth) = growing.max_by_key(|growth| growth.rise_bytes) {
        let [from, to] = [growth.from, growth.to].map(|at| words::after(at.offset_ns));
        let options = format!("--from {from} --to {to}");
        return format!("{} for who gained what meanwhile.", command(&options));
    }
    if analysis.peak.is_none() {
        return format!("{} for all that there is.", command("--full"));
    }
    if analysis
        .phases
        .as_ref()
        .is_some_and(|phases| !phases.lines.is_empty())
    {
        return format!("{} for what each phase cost.", command("--phases"));
    }
    format!("{} for who held what then.", command("--at peak"))
}

fn at(offset: DurationNs) -> String {
    format!("--at {}", words::after(offset))
}

fn phase(name: &str) -> String {
    format!("--phase {}", quoted(name))
}

/// As a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:+=@%,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
