//! Who grew before a kill: processes, and small ones that are alike.
//!
//! RSS counts a page that a fork copied in each process that has it, so forked children would be
//! said to have grown by what they never took, and a page that a child copies by writing to it
//! would be seen nowhere. What a process has alone is at least what it has beyond its parent's
//! memory at the fork. How much of the rest became copies is the same for all, and is reported by the
//! kernel's own account of the group: its anonymous memory, less what everybody has alone.
//!
//! Shared memory counts in the RSS of everyone who maps it, too. Of what they held each has its part
//! of the objects that it maps; where those are not known, what the kernel says is shared in the
//! group is divided by RSS.

use crate::Amounts;
use crate::composition::Composition;
use crate::process::Process;
use crate::who::Bundle;
use memtrace_model::tables::OomRow;
use memtrace_model::{BootNs, Bytes, FirstSeenBy, Order};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A process that has one part in so many of what was in use, or grew by that, has a line of its
/// own: it can be the cause. Smaller ones that are alike share one.
const OWN_LINE_PART: i64 = 20;

/// A process, or several small ones that do the same thing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Grower {
    /// Who, the one that grew most first.
    #[serde(flatten)]
    pub who: Bundle,
    /// What they have in common with others that do the same thing.
    #[serde(skip)]
    pub shape: Arc<str>,
    /// What they held at the kill that the kernel could not simply drop: anonymous memory of
    /// all, each page once, and their part of shared memory.
    pub bytes: Bytes,
    /// Their part of shared memory.
    #[serde(skip)]
    pub shared_bytes: Bytes,
    /// By how much their anonymous memory, and the largest shared part of any one, grew in each
    /// window, the shortest first; `None` where it is not known what they held before. What several
    /// lines share counts in each.
    pub grown_bytes: Vec<Option<Bytes>>,
    /// What of that is shared memory.
    #[serde(skip)]
    pub grown_shared_bytes: Vec<Option<Bytes>>,
    /// What of that are copies of pages that they had shared with their parent since the fork; `None`
    /// where the kernel's account that tells is not known at both ends of the window, so that no copy
    /// counts as growth.
    pub copied_bytes: Vec<Option<Bytes>>,
}

impl Grower {
    /// By how much it grew in a window; zero where that is unknown.
    pub(crate) fn grown(&self, window: usize) -> Bytes {
        let grown = self.grown_bytes.get(window).copied().flatten();
        grown.unwrap_or(Bytes(0))
    }

    /// What of that are copies of pages that it had shared since its fork; zero where that is unknown.
    pub(super) fn copied(&self, window: usize) -> Bytes {
        let copied = self.copied_bytes.get(window).copied().flatten();
        copied.unwrap_or(Bytes(0))
    }

    /// Whether most of what it grew by in a window are such copies.
    pub fn is_by_copies(&self, window: usize) -> bool {
        let copied = self.copied(window);
        copied.0 > 0 && copied.0 * 2 >= self.grown(window).0
    }
}

/// What was held at one instant.
pub(super) struct State<'a> {
    pub(super) boot_ns: BootNs,
    pub(super) composition: &'a Composition,
    /// Anonymous memory of those who live under the limit, by the kernel's account.
    pub(super) anon: Option<Bytes>,
}

/// What of a process's memory the kernel can't simply drop: mapped files it can.
#[derive(Clone, Copy, Default)]
struct Own {
    /// Anonymous memory that it has alone.
    alone: i64,
    /// Anonymous memory that it can share with its parent since the fork.
    inherited: i64,
    shared: i64,
}

impl Own {
    fn of(process: &Process, amounts: &Amounts, at: BootNs) -> Option<Self> {
        let (anon, shared) = match (amounts.anon(), amounts.shmem()) {
            (Some(anon), Some(shared)) => (anon.0, shared.0),
            // Where kinds are unknown.
            _ => (amounts.rss()?.0, 0),
        };
        let inherited = process
            .inherited(Bytes(anon), at)
            .map_or(0, |bytes| bytes.0);
        Some(Self {
            alone: anon - inherited,
            inherited,
            shared,
        })
    }
}

/// What those under the limit held at one instant.
struct Held {
    own: HashMap<usize, Own>,
    /// Those whose memory is not known.
    unknown: HashSet<usize>,
    /// Which part of what was inherited became copies; `None` where the kernel's account of the
    /// instant is not known.
    copied_part: Option<f64>,
}

impl Held {
    fn of(state: &State<'_>, processes: &[Process], is_concerned: impl Fn(usize) -> bool) -> Self {
        let mut held = Self {
            own: HashMap::new(),
            unknown: HashSet::new(),
            copied_part: None,
        };
        let holders = state.composition.holders.iter();
        for holder in holders.filter(|holder| is_concerned(holder.process)) {
            let process = &processes[holder.process];
            match Own::of(process, &holder.amounts, state.boot_ns) {
                Some(own) => _ = held.own.insert(holder.process, own),
                None => _ = held.unknown.insert(holder.process),
            }
        }
        held.account(state.anon);
        held
    }

    /// Divides what the kernel says there is.
    fn account(&mut self, anon: Option<Bytes>) {
        let sum = |part: fn(&Own) -> i64| self.own.values().map(part).sum::<i64>();
        let (alone, inherited) = (sum(|own| own.alone), sum(|own| own.inherited));
        self.copied_part = anon.map(|anon| match inherited {
            0 => 0.0,
            inherited => ((anon.0 - alone) as f64 / inherited as f64).clamp(0.0, 1.0),
        });
    }
}

/// The part of each in what they share.
fn shared_parts(own: &HashMap<usize, Own>, state: &State<'_>) -> HashMap<usize, i64> {
    let shares = state.composition.shares.iter();
    let parts = shares.map(|share| (share.process, share.shmem_bytes.0));
    parts.filter(|(place, _)| own.contains_key(place)).collect()
}

/// What one process held at the kill and before: alone, copied, shared.
struct One {
    process: usize,
    /// Its part of what is shared, at the kill.
    shared_part: i64,
    now: Parts,
    before: Vec<Option<Parts>>,
}

#[derive(Clone, Copy, Default)]
struct Parts {
    alone: i64,
    copied: i64,
    is_copied_unknown: bool,
    shared: i64,
}

impl Parts {
    /// `else_copied` is the part that is taken to be copied where the kernel's account is unknown.
    fn of(own: Own, copied_part: Option<f64>, else_copied: f64) -> Self {
        Self {
            alone: own.alone,
            copied: (own.inherited as f64 * copied_part.unwrap_or(else_copied)) as i64,
            is_copied_unknown: copied_part.is_none() && own.inherited > 0,
            shared: own.shared,
        }
    }
}

/// Everyone that held memory at the kill and lived under the limit that was hit. `earlier` are the
/// states at the starts of the windows; `whole` is what was in use.
pub(super) fn growers(
    processes: &[Process],
    (kill, victim): (&OomRow, Option<usize>),
    at_kill: &State<'_>,
    earlier: &[State<'_>],
    whole: Option<Bytes>,
    is_concerned: impl Fn(&Process) -> bool,
) -> Vec<Grower> {
    // Whom the kernel chose lived under the limit, whatever was known of its group.
    let is_concerned = |place: usize| Some(place) == victim || is_concerned(&processes[place]);
    let mut now = Held::of(at_kill, processes, is_concerned);
    // The kernel tells of the victim what it had at this very instant. It sends the signal before it
    // tells of the kill, so the victim's end can come first.
    if let (Some(victim), Some(anon), Some(shared)) = (
        victim,
        kill.victim_rss_anon_bytes,
        kill.victim_rss_shmem_bytes,
    ) {
        let inherited = processes[victim].inherited(anon, at_kill.boot_ns);
        let inherited = inherited.map_or(0, |bytes| bytes.0);
        let own = Own {
            alone: anon.0 - inherited,
            inherited,
            shared: shared.0,
        };
        now.own.insert(victim, own);
        now.account(at_kill.anon);
    }
    let shared_parts = shared_parts(&now.own, at_kill);
    let copied_part = now.copied_part.unwrap_or(0.0);
    let before: Vec<(BootNs, Held)> = earlier
        .iter()
        .map(|state| (state.boot_ns, Held::of(state, processes, is_concerned)))
        .collect();
    let mut alike: HashMap<(&str, bool), Vec<One>> = HashMap::new();
    for (&place, own) in &now.own {
        let process = &processes[place];
        let before = before
            .iter()
            .map(|(start, held)| match held.own.get(&place) {
                Some(own) => Some(Parts::of(*own, held.copied_part, copied_part)),
                None if held.unknown.contains(&place) || was_overlooked(process, *start) => None,
                None => Some(Parts::default()),
            });
        let one = One {
            process: place,
            shared_part: shared_parts.get(&place).copied().unwrap_or(0),
            now: Parts::of(*own, now.copied_part, copied_part),
            before: before.collect(),
        };
        let kind = (process.shape.as_ref(), process.is_main);
        alike.entry(kind).or_default().push(one);
    }
    let enough = whole.map_or(1, |whole| (whole.0 / OWN_LINE_PART).max(1));
    let mut growers: Vec<Grower> = alike
        .into_values()
        .flat_map(|group| split(group, enough))
        .map(|group| together(processes, &group, before.len()))
        .collect();
    growers.order_by_key(|grower| {
        let grown = grower.grown_bytes.last().copied().flatten();
        (
            std::cmp::Reverse((grown, grower.bytes)),
            grower.who.members.first().copied(),
        )
    });
    growers
}

/// Whether a process was there at an instant, and nobody had looked yet: of one whose fork was seen
/// it is known that it held nothing of its own before its first row.
fn was_overlooked(process: &Process, at: BootNs) -> bool {
    let is_seen_from_begin = matches!(
        process.first_seen_by,
        Some(FirstSeenBy::Fork | FirstSeenBy::Command)
    );
    process.start.boot_ns < at && (process.first_seen.boot_ns > at || !is_seen_from_begin)
}

/// Those that hold or gained enough for themselves alone get a line each, and one that has most of what
/// they share; the rest share one.
fn split(mut group: Vec<One>, enough: i64) -> Vec<Vec<One>> {
    let grown = |one: &One| {
        let before = one.before.iter().flatten();
        before.map(|before| one.now.alone - before.alone).max()
    };
    let shared: i64 = group.iter().map(|one| one.shared_part).sum();
    group.order_by_key(|one| (std::cmp::Reverse(grown(one)), one.process));
    let (own, rest): (Vec<One>, Vec<One>) = group.into_iter().partition(|one| {
        let has_most_shared = one.shared_part >= enough && one.shared_part * 2 > shared;
        one.now.alone >= enough || grown(one) >= Some(enough) || has_most_shared
    });
    let own = own.into_iter().map(|one| vec![one]);
    own.chain((!rest.is_empty()).then_some(rest)).collect()
}

fn together(processes: &[Process], group: &[One], windows: usize) -> Grower {
    let sum = |of: &dyn Fn(&One) -> Option<Parts>| -> Option<Parts> {
        group.iter().try_fold(Parts::default(), |sum, one| {
            let parts = of(one)?;
            Some(Parts {
                alone: sum.alone + parts.alone,
                copied: sum.copied + parts.copied,
                is_copied_unknown: sum.is_copied_unknown || parts.is_copied_unknown,
                shared: sum.shared.max(parts.shared),
            })
        })
    };
    let now = sum(&|one| Some(one.now)).unwrap_or_default();
    let before = |window: usize| sum(&|one| one.before.get(window).copied().flatten());
    let members: Vec<usize> = group.iter().map(|one| one.process).collect();
    let first = members.first().and_then(|first| processes.get(*first));
    let since = |of: fn(Parts) -> i64| -> Vec<Option<Bytes>> {
        let grown = (0..windows).map(|window| Some(Bytes(of(now) - of(before(window)?))));
        grown.collect()
    };
    let copied_bytes = (0..windows).map(|window| {
        let before = before(window)?;
        let is_known = !now.is_copied_unknown && !before.is_copied_unknown;
        is_known.then_some(Bytes(now.copied - before.copied))
    });
    let shared: i64 = group.iter().map(|one| one.shared_part).sum();
    Grower {
        shape: first.map_or_else(|| Arc::from(""), |first| Arc::clone(&first.shape)),
        who: Bundle::of(processes, members),
        bytes: Bytes(now.alone + now.copied + shared),
        shared_bytes: Bytes(shared),
        grown_bytes: since(|parts| parts.alone + parts.copied + parts.shared),
        grown_shared_bytes: since(|parts| parts.shared),
        copied_bytes: copied_bytes.collect(),
    }
}
