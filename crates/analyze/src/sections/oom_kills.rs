//! OOM kills: who was killed, at whose limit, who held the memory, who had grown, and what it
//! was not.

use super::{allocations, layout};
use crate::moment::offset;
use crate::{
    Analysis, Grower, GrownObject, HeldKind, KindLine, Leak, LimitHolder, OomFinding, PostMortem,
    Pressure, Report, Who,
};
use memtrace_model::tables::OomRow;
use memtrace_model::{Bytes, DurationNs, Label, quoted};
use memtrace_report::words::{bytes, bytes_or_unknown};
use memtrace_report::{Cell, Chapter, MORE_IN_JSON, Section, TableOf, Tone, visible, words};

/// Holders named in one line.
const MAX_HOLDERS: usize = 3;
/// What else was in use is reported from one part in so many on.
const NOTABLE_PART: i64 = 100;
/// Growers that get a line each.
const MAX_GROWERS: usize = 5;
/// So many kills are reported with what led to them; the others in short.
const MAX_EXPLAINED: usize = 3;

pub(super) const SECTION: Section<Report> = Section {
    name: "oom-kills",
    doc: "kills by the OOM killer, and what led to them",
    keys: &["oom_kills"],
    tell: |analysis, view| {
        let kills: Vec<&OomFinding> = concerning(analysis).collect();
        let count = kills.len();
        if count == 0 {
            return Vec::new();
        }
        let mut section = Chapter::alarming(match kills.as_slice() {
            [only] => format!(
                "OOM kill: {} at {}",
                victim(analysis, only),
                analysis.clock.when(only.at)
            ),
            _ => format!("OOM kills: {}", words::count(count)),
        });
        for (place, kill) in kills.into_iter().take(view.top).enumerate() {
            if count > 1 {
                let when = analysis.clock.when(kill.at);
                section.alert(format!("{}, at {when}", victim(analysis, kill)));
            }
            let post_mortem = kill.post_mortem.as_ref();
            // Among the first lines of the whole report stands the first of them.
            let is_reported = place == 0 && view.is_below_the_answer();
            if let Some(found) = post_mortem.filter(|_| !is_reported) {
                section.strong(answer(analysis, kill, found));
            }
            section.say(victim_line(&kill.row));
            section.say(cause_line(analysis, kill));
            let holders = post_mortem.and_then(holders_line);
            section.tell(Tone::Plain, holders);
            if let Some(found) = post_mortem.filter(|_| place < view.most(MAX_EXPLAINED)) {
                growers_table(&mut section, found, view.most(MAX_GROWERS));
                let culprit = found
                    .culprit()
                    .map(|(grower, _)| grower.who.members.as_slice());
                for process in culprit.unwrap_or_default().iter().take(1) {
                    layout::remark(analysis, *process, &mut section);
                }
                let allocated = found.allocated.as_ref();
                section.tell(Tone::Plain, allocated.and_then(allocations::at_kill));
                kinds_table(&mut section, found);
                section.tell(Tone::Plain, approach_line(found));
                let path = analysis.path.as_deref().map(quoted);
                let path = path.map_or_else(String::new, |path| format!(" {path}"));
                let offset = offset(kill.examined());
                let reported = format!(
                    "All processes at that instant: `memtrace report{path} --at {offset}`."
                );
                section.quiet(reported);
            }
        }
        section.rest(count, view.top, words::count, MORE_IN_JSON);
        vec![section]
    },
    ..Section::EMPTY
};

/// The kills that concern somebody in the recording.
pub(super) fn concerning(analysis: &Analysis) -> impl Iterator<Item = &OomFinding> {
    analysis.ooms.iter().filter(|kill| !kill.is_elsewhere)
}

/// Whether there was no such kill.
pub(super) fn is_none(analysis: &Analysis) -> bool {
    concerning(analysis).next().is_none()
}

/// The first such kill in a sentence, with how many came after it.
pub(super) fn in_short(analysis: &Analysis) -> Option<(String, &OomFinding)> {
    let first = concerning(analysis).next()?;
    let reported = match &first.post_mortem {
        Some(found) => answer(analysis, first, found),
        None => format!(
            "{} was killed because memory ran out. {}",
            victim(analysis, first),
            cause_line(analysis, first)
        ),
    };
    let more = match concerning(analysis).count() - 1 {
        0 => String::new(),
        1 => " Another OOM kill followed.".to_owned(),
        more => format!(" {} more OOM kills followed.", words::count(more)),
    };
    Some((reported + &more, first))
}

/// The kills that concern nobody in the recording, in one line.
pub(super) fn elsewhere(analysis: &Analysis) -> Option<String> {
    let count = analysis
        .ooms
        .iter()
        .filter(|kill| kill.is_elsewhere)
        .count();
    let kills = match count {
        0 => return None,
        1 => "1 OOM kill".to_owned(),
        count => format!("{} OOM kills", words::count(count)),
    };
    Some(format!(
        "{kills} elsewhere on this machine (see `--format json`)."
    ))
}

fn victim(analysis: &Analysis, kill: &OomFinding) -> String {
    match kill.victim {
        Some(position) => Who::from(&analysis.processes[position]).in_words(),
        None => format!(
            "{} {} (not part of this recording)",
            kill.row.victim_tgid,
            kill.row.victim_comm.as_deref().unwrap_or(words::UNKNOWN)
        ),
    }
}

/// The whole story in one sentence.
fn answer(analysis: &Analysis, kill: &OomFinding, found: &PostMortem) -> String {
    let row = &kill.row;
    let because = cause(row, |memcg| analysis.cgroup_in_short(memcg));
    let mut parts = vec![format!(
        "{} was killed because {because}",
        victim(analysis, kill)
    )];
    parts.extend(growth(found));
    // Whoever fills a file system in memory has nothing of it in its RSS, and asks for the last page of it.
    let is_of_nobody = found.grown_object.is_none()
        && found
            .grown_kind
            .is_some_and(|grown| grown.kind == HeldKind::Shared);
    let trigger = trigger(analysis, kill).filter(|_| is_of_nobody && kill.trigger != kill.victim);
    parts.extend(trigger.map(|trigger| format!("{trigger} asked for more when it was full")));
    let grew_more = found.grew_more();
    let is_said =
        |leak: &&Leak| grew_more.is_some_and(|more| more.grower.who.members == leak.who.members);
    let leak = found.leak.as_ref().filter(|leak| !is_said(leak));
    parts.extend(leak.map(|leak| leak_words(found, leak)));
    let held = victim_bytes(row);
    let is_culprit = kill.victim.is_some_and(|victim| {
        let culprit = found.culprit().filter(|_| found.grown_kind.is_none());
        culprit.is_some_and(|(grower, _)| grower.who.members == [victim])
    });
    let who = if is_culprit { "it" } else { "the victim" };
    parts.extend(held.map(|held| format!("{who} had {} resident", bytes(held))));
    format!("{}.", parts.join("; "))
}

/// Why a process was killed, as far as the kernel's log says it; `name` names a cgroup.
pub fn cause(row: &OomRow, name: impl Fn(&str) -> String) -> String {
    match (&row.memcg, row.constraint.as_deref()) {
        (Some(memcg), _) => format!(
            "{} (limit {}) was full",
            name(memcg),
            bytes_or_unknown(row.memcg_limit_bytes)
        ),
        (None, Some("CONSTRAINT_NONE")) => "the machine was out of memory".to_owned(),
        (None, constraint) => match constraint.and_then(nodes_of) {
            Some(nodes) => format!("{nodes} had no memory left"),
            None => "some limit was hit".to_owned(),
        },
    }
}

/// What grew when the limit was met, as parts of a sentence.
fn growth(found: &PostMortem) -> Vec<String> {
    let Some((reported, length)) = found.reported.zip(found.window_ns) else {
        return Vec::new();
    };
    let window = window_words(length);
    if let Some(grown) = found.grown_kind {
        let most = found.growers.iter().map(|one| one.grown(reported)).max();
        let than = match grown.kind {
            // A process that grew by more had stopped.
            _ if most >= Some(grown.grown_bytes) => "and went on until the kill",
            HeldKind::Unrecorded => "more than any recorded one",
            _ => "more than any process",
        };
        let mut parts = vec![format!(
            "{} grew by {} in the {window} before, {than}",
            grown.kind.shown(),
            bytes(grown.grown_bytes)
        )];
        let object = found.grown_object.as_ref();
        parts.extend(object.map(|object| object_words(object, grown.grown_bytes)));
        return parts;
    }
    let Some((grower, grown)) = found.culprit() else {
        return vec![format!("no process grew in the {window} before")];
    };
    let name = grower.who.in_words();
    let mut reported_of = match found.is_sudden {
        true => format!(
            "{name} grew suddenly, by {} in the {window} before",
            bytes(grown)
        ),
        false => format!("{name} grew by {} in the {window} before", bytes(grown)),
    };
    if grower.is_by_copies(reported) {
        reported_of.push_str(", by writing to pages shared since a fork");
    }
    let alike = found.growers.iter().skip(1).filter(|other| {
        let grown_too = other.grown(reported);
        other.shape == grower.shape && grown_too <= grown && grown_too.0 * 2 >= grown.0
    });
    // What they share with the first is reported of that one.
    let of =
        |amounts: &[Option<Bytes>]| amounts.get(reported).copied().flatten().unwrap_or_default();
    let mut shared = of(&grower.grown_shared_bytes).max(Bytes(0));
    let (mut count, mut more) = (0, Bytes(0));
    for other in alike {
        let shared_too = of(&other.grown_shared_bytes);
        count += other.who.process_count;
        more = more + of(&other.grown_bytes) - shared_too + (shared_too - shared).max(Bytes(0));
        shared = shared.max(shared_too);
    }
    if count > 0 {
        let count = words::count(count);
        reported_of.push_str(&match more > Bytes(0) {
            true => format!(", and {count} more like it by {}", bytes(more)),
            false => format!(", which {count} more like it share"),
        });
    }
    let mut parts = vec![reported_of];
    parts.extend(found.grew_more().map(|more| {
        let (name, grown) = (more.grower.who.in_words(), bytes(more.grown_bytes));
        let lately = match more.lately {
            Some(_) if more.has_stopped => ", and had stopped".to_owned(),
            Some((length, lately)) => {
                let (length, lately) = (window_words(length), bytes(lately));
                format!(", {lately} of it in the last {length}")
            }
            None => String::new(),
        };
        format!("{name} had grown by {grown} in that time{lately}")
    }));
    parts
}

/// A slower growth beside the one that met the limit.
fn leak_words(found: &PostMortem, leak: &Leak) -> String {
    let (window, grown) = (window_words(leak.window_ns), bytes(leak.grown_bytes));
    match leak.is_first && found.grown_kind.is_none() {
        true => format!("more slowly, it had grown by {grown} before that, within {window}"),
        false => format!(
            "more slowly, {} had grown by {grown} in the {window} before",
            leak.who.in_words()
        ),
    }
}

/// The object that took most of the memory, and who has it; or several objects, and the largest.
fn object_words(object: &GrownObject, all_grown: Bytes) -> String {
    let object_name = object.name.as_deref().map(visible);
    let object_name = object_name.as_deref().unwrap_or("an object without a name");
    let (grown, all) = (bytes(object.grown_bytes), bytes(object.bytes));
    let deed = if object.is_mapped {
        "mapped"
    } else {
        "held open"
    };
    let who = match object.held_by.as_slice() {
        [] => match &object.opened_by {
            Some(opener) => format!("first opened by {}, which had ended", opener.in_words()),
            None => "no recorded process has it open".to_owned(),
        },
        [only] => format!("{deed} by {}", only.in_words()),
        [first, rest @ ..] => format!(
            "{deed} by {} and {} more",
            first.in_words(),
            words::count(rest.len())
        ),
    };
    let age = match object.age_ns.as_secs_f64() {
        age if age < 1.0 => String::new(),
        _ => format!(" when read {} before", words::duration(object.age_ns)),
    };
    let size = match grown == all {
        true => grown,
        false => format!("{grown} to {all}"),
    };
    let reported = format!("{object_name} (+{size}{age}), {who}");
    let is_most = |grown: Bytes| grown.0 * 2 >= all_grown.0;
    if is_most(object.grown_bytes) {
        return format!("most of it in {reported}");
    }
    let rest = match is_most(object.objects_grown_bytes) {
        true => "",
        false => "; no recorded process has the rest open",
    };
    match object.object_count {
        0 | 1 => format!("part of it in {reported}{rest}"),
        count => {
            let sum = bytes(object.objects_grown_bytes);
            format!("in {count} objects (+{sum}), the largest {reported}{rest}")
        }
    }
}

/// Anonymous and shared memory: what its end could give back.
fn victim_bytes(row: &OomRow) -> Option<Bytes> {
    Some(row.victim_rss_anon_bytes? + row.victim_rss_shmem_bytes?)
}

/// Who grew, in each window.
fn growers_table(section: &mut Chapter, found: &PostMortem, most: usize) {
    let has_grown = |grower: &&Grower| {
        let mut grown = grower.grown_bytes.iter().flatten();
        grown.any(|grown| grown.0 > 0)
    };
    let grown = found.growers.iter().filter(has_grown).take(most);
    let mut table = TableOf::of(grown).flexible(("process", "WHO GREW BEFORE"), |grower| {
        grower.who.in_words()
    });
    for (place, length) in found.windows.iter().enumerate() {
        let rank = if Some(place) == found.reported { 0 } else { 2 };
        let heading = window_heading(*length).unwrap_or(("since_start_bytes", "SINCE START"));
        table = table.change(heading, rank, |grower| {
            grower.grown_bytes.get(place).copied().flatten()
        });
    }
    table
        .figures("held_bytes", 1, |grower| grower.bytes)
        .add_to(section);
    if found
        .windows
        .iter()
        .any(|length| window_heading(*length).is_none())
    {
        let longest = found.windows.last().copied().unwrap_or_default();
        section.quiet(format!(
            "SINCE START: the recording covers {} before the kill.",
            words::duration(longest)
        ));
    }
}

/// `60s`; of a window that is cut its own length.
fn window_words(length: DurationNs) -> String {
    match window_heading(length) {
        Some(_) => words::interval(length),
        None => words::duration(length),
    }
}

/// `None` for a window that is cut at the start of the recording.
fn window_heading(length: DurationNs) -> Option<(&'static str, &'static str)> {
    match length.0 {
        1_000_000_000 => Some(("in_1s_bytes", "IN 1s")),
        10_000_000_000 => Some(("in_10s_bytes", "IN 10s")),
        60_000_000_000 => Some(("in_60s_bytes", "IN 60s")),
        600_000_000_000 => Some(("in_600s_bytes", "IN 600s")),
        _ => None,
    }
}

/// What was in use by kind, and what that rules out.
fn kinds_table(section: &mut Chapter, found: &PostMortem) {
    // Most machines have none of these, and then they are no answer to anything.
    let is_rare = |kind| matches!(kind, HeldKind::Hugetlb | HeldKind::Sockets);
    let is_reported = |line: &&KindLine| !is_rare(line.kind) || line.bytes.0 != 0;
    TableOf::of(found.kinds.iter().filter(is_reported))
        .flexible("kind", |line| line.kind.shown())
        .held(("at_kill_bytes", "AT THE KILL"), 0, |line| line.bytes)
        .figures("share", 1, |line| match line.kind {
            // What is swapped out is no part of what is in use.
            HeldKind::Swap => "".into(),
            _ => Cell::Share(Some(line.bytes), found.in_use_bytes),
        })
        .figures("grew_bytes", 0, |line| {
            let grown = Cell::Change(line.grown_bytes);
            match line.is_growth_partial {
                true => grown.shown_as(format!("≥ {}", grown.shown())),
                false => grown,
            }
        })
        .words(("is_ruled_out", ""), 0, |line| match line.is_ruled_out {
            true => "ruled out",
            false => "",
        })
        .add_to(section);
    if found.kinds.is_empty() {
        let line = "What was in use by kind is unknown: nothing was read before the kill.";
        section.quiet(line);
    }
}

/// How near it was to get, and what was left to be taken back.
fn approach_line(found: &PostMortem) -> Option<String> {
    let mut parts = Vec::new();
    if found.kinds_age_ns.0 > 0 {
        let age = words::duration(found.kinds_age_ns);
        parts.push(format!("The kinds were read {age} before the kill"));
    }
    if let Some(amount) = found.reclaimable_bytes {
        let amount = bytes(amount);
        parts.push(format!(
            "up to {amount} of what was in use could be reclaimed without swap"
        ));
    }
    if let Some(window) = found.window_ns {
        parts.extend(waited(&found.pressure, window));
    }
    let mut line = parts.join("; ");
    if let Some(first) = line.get(..1).map(str::to_uppercase) {
        line.replace_range(..1, &first);
    }
    (!line.is_empty()).then(|| format!("{line}."))
}

fn waited(pressure: &Pressure, window: DurationNs) -> Vec<String> {
    let mut reported = Vec::new();
    let window = window_words(window);
    if let Some(hits) = pressure.limit_hit_count.filter(|hits| *hits > 0) {
        let hits = words::count(hits);
        reported.push(format!("the limit was hit {hits} × in the {window} before"));
    }
    if let Some(some) = pressure.some_ns.filter(|some| some.0 > 0) {
        let full = pressure.full_ns.map(words::duration);
        let full = full.map_or_else(String::new, |full| format!(", all tasks during {full}"));
        reported.push(format!(
            "at least one task waited for memory during {} of the {window} before{full}",
            words::duration(some)
        ));
    }
    reported
}

fn victim_line(row: &OomRow) -> String {
    let kinds = words::kinds(
        row.victim_rss_anon_bytes,
        row.victim_rss_file_bytes,
        row.victim_rss_shmem_bytes,
    );
    let mut line = match kinds.is_empty() {
        true => "The victim had nothing resident".to_owned(),
        false => format!("The victim had {kinds} resident"),
    };
    if let Some(adjustment) = row
        .victim_oom_score_adj
        .filter(|adjustment| *adjustment > 0)
    {
        line.push_str(&format!(
            "; its oom_score_adj of {adjustment} made the kernel choose it before others"
        ));
    }
    format!("{line}.")
}

fn cause_line(analysis: &Analysis, kill: &OomFinding) -> String {
    let bound = bound(analysis, &kill.row);
    match trigger(analysis, kill) {
        Some(trigger) => format!("{bound}; the allocation that hit it was made by {trigger}."),
        None => format!("{bound}."),
    }
}

/// Whose allocation could not be met.
fn trigger(analysis: &Analysis, kill: &OomFinding) -> Option<String> {
    match (kill.trigger, kill.row.trigger_tgid, &kill.row.trigger_comm) {
        (Some(position), _, _) => Some(Who::from(&analysis.processes[position]).in_words()),
        (None, tgid, comm) => {
            let comm = comm.as_deref().unwrap_or(words::UNKNOWN);
            tgid.map(|tgid| format!("{tgid} {comm}"))
        }
    }
}

/// The memory nodes to which an allocation was bound.
fn nodes_of(constraint: &str) -> Option<&'static str> {
    match constraint {
        "CONSTRAINT_CPUSET" => Some("the memory nodes of its cpuset"),
        "CONSTRAINT_MEMORY_POLICY" => Some("the memory nodes of its memory policy"),
        _ => None,
    }
}

fn bound(analysis: &Analysis, row: &OomRow) -> String {
    match (row.constraint.as_deref(), &row.memcg) {
        (_, Some(memcg)) => format!(
            "The limit of {} was hit: {} in use of {}",
            analysis.cgroup_in_words(memcg),
            bytes_or_unknown(row.memcg_usage_bytes),
            bytes_or_unknown(row.memcg_limit_bytes)
        ),
        (Some("CONSTRAINT_NONE"), None) => "The whole machine was out of memory".to_owned(),
        (Some("CONSTRAINT_MEMCG"), None) => "The limit of some cgroup was hit".to_owned(),
        (Some(constraint), None) => match nodes_of(constraint) {
            Some(nodes) => format!("The bound {constraint} was hit: {nodes} had no memory left"),
            None => format!("The bound {constraint} was hit"),
        },
        (None, None) => "Which limit was hit is unknown (the kernel log can't be read)".to_owned(),
    }
}

/// Who held most of what the kernel could not simply drop.
fn holders_line(found: &PostMortem) -> Option<String> {
    let holders = &found.holders;
    let mut reported: Vec<String> = holders
        .iter()
        .take(MAX_HOLDERS)
        .map(|holder| format!("{} {}", holder.who.in_words(), bytes(holder.bytes)))
        .collect();
    let rest = holders.get(MAX_HOLDERS..).unwrap_or_default();
    if !rest.is_empty() {
        let count: usize = rest.iter().map(|holder| holder.who.process_count).sum();
        let amount: Bytes = rest.iter().map(|holder| holder.bytes).sum();
        reported.push(format!("{} more {}", words::count(count), bytes(amount)));
    }
    let place = match found.is_of_node {
        true => "at that instant",
        false => "under that limit",
    };
    let holds = format!(
        "Held {place}, anonymous and shared memory: {}.",
        reported.join(" · ")
    );
    let rest = rest_line(found);
    (!reported.is_empty()).then_some(holds + &rest)
}

/// What else was in use, so that all of it is reported.
fn rest_line(found: &PostMortem) -> String {
    let Some(in_use) = found.in_use_bytes else {
        return String::new();
    };
    let is_of_holders = |kind| {
        matches!(
            kind,
            HeldKind::Anonymous | HeldKind::Shared | HeldKind::Swap
        )
    };
    let others = found
        .kinds
        .iter()
        .filter(|line| !is_of_holders(line.kind) && line.bytes.0 > 0);
    let named: Bytes = others.clone().map(|line| line.bytes).sum();
    let sum = |part: fn(&LimitHolder) -> Bytes| found.holders.iter().map(part).sum::<Bytes>();
    let (held, shared) = (
        sum(|holder| holder.bytes),
        sum(|holder| holder.shared_bytes),
    );
    let is_notable = |bytes: Bytes| bytes.0 * NOTABLE_PART >= in_use.0;
    let mut reported: Vec<String> = others
        .map(|line| format!("{} {}", line.kind.shown(), bytes(line.bytes)))
        .collect();
    let shared_in_all = found
        .kinds
        .iter()
        .find(|line| line.kind == HeldKind::Shared);
    let shared_left = shared_in_all.map_or(Bytes(0), |line| line.bytes - shared);
    let shared_left = shared_left.max(Bytes(0));
    if is_notable(shared_left) {
        reported.push(format!(
            "shared memory that no recorded process maps {}",
            bytes(shared_left)
        ));
    }
    let left = in_use - named - held - shared_left;
    if is_notable(left) {
        reported.push(format!("not accounted for {}", bytes(left)));
    }
    match reported.is_empty() {
        true => String::new(),
        false => format!(
            " The rest of the {} in use: {}.",
            bytes(in_use),
            reported.join(" · ")
        ),
    }
}
