//! What seeing calls on address spaces costs on this machine: a short trial of one way, with
//! the programs attached as in a recording, on calls of our own.

use super::backend::{BpfOptions, FEW_CPUS, VM_BURST, settings};
use super::error::LoadError;
use super::load::{self, Programs};
use crate::Targets;
use aya::maps::{MapData, RingBuf};
use memtrace_host::{HostFacts, Plan, ProbeCosts, ProbeWay, Slowdown, clock};
use memtrace_model::{Bytes, DurationNs, Tgid};

/// Rounds of a trial. Each takes all kinds of calls with and without the programs, so that
/// what else the machine does meets both alike.
const ROUNDS: usize = 5;
/// One kind of calls in one state.
const LEG: DurationNs = DurationNs(10_000_000);
/// Calls between two looks at the clock.
const BATCH: u64 = 100;
const MAP_BYTES: usize = 1 << 20;

/// Tries one way; takes less than a second.
///
/// # Errors
/// When the kernel refuses the way, or the programs.
pub fn probe_costs(way: ProbeWay, facts: &HostFacts, plan: &Plan) -> Result<ProbeCosts, LoadError> {
    let own = Tgid(std::process::id());
    let online = facts.online_cpu_count.unwrap_or(1);
    let options = BpfOptions {
        targets: Targets::Roots(vec![own]),
        held: None,
        // Nothing is swept here.
        interval: DurationNs(0),
        page_size: facts.page_size(),
        possible_cpus: facts.possible_cpu_count.unwrap_or(online),
        online_cpus: online,
        few_cpus: FEW_CPUS,
        has_stacks: false,
        cuda: None,
        gpu_haste: None,
        members_max: plan.members_max,
        ended_max: 1, // nobody ends here
        probes: vec![way],
        are_probes_named: true,
        vm_min: Bytes(MAP_BYTES as i64),
        memory_hierarchy: None,
    };
    let settings = settings(&options);
    let mut without = Legs::default();
    let mut unrecorded = Legs::default();
    let mut member = Legs::default();
    for _ in 0..ROUNDS {
        without.run(None);
        let (mut programs, mut ring) = load::load(&settings)?;
        if programs.probe_way().is_none() {
            return Err(LoadError::Probes(programs.probe_refusals.join("; ")));
        }
        unrecorded.run(None);
        enter(&mut programs, own)?;
        // The first calls of a process are rows each; a storm is summed after those.
        for _ in 0..=2 * VM_BURST / BATCH {
            Kind::Mmap.batch();
        }
        member.run(Some(&mut ring));
    }
    let slowdown = |with: &Legs, kind| without.slowdown(with, kind);
    Ok(ProbeCosts {
        traced_mmap: slowdown(&member, Kind::Mmap),
        traced_brk: slowdown(&member, Kind::Brk),
        untraced_mmap: slowdown(&unrecorded, Kind::Mmap),
        other_call: slowdown(&unrecorded, Kind::Getppid),
    })
}

/// Makes this process one that is recorded.
fn enter(programs: &mut Programs, own: Tgid) -> Result<(), LoadError> {
    programs.enter(own)?;
    programs.visit_tasks(|_| {})
}

/// A kind of calls.
#[derive(Clone, Copy)]
enum Kind {
    /// mmap and munmap of 1 MiB.
    Mmap,
    /// brk, up by 1 MiB and back.
    Brk,
    /// A call that no program is interested in, and that does nothing.
    Getppid,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Mmap, Self::Brk, Self::Getppid];

    /// Makes some calls; how many. Nothing in here allocates, which could move the break.
    fn batch(self) -> u64 {
        match self {
            Self::Mmap => (0..BATCH / 2).for_each(|_| map_and_unmap()),
            Self::Brk => raise_and_lower(BATCH / 2),
            Self::Getppid => (0..BATCH).for_each(|_| {
                // SAFETY: takes nothing and can't fail. Not through libc's own function,
                // which may remember the answer.
                unsafe { libc::syscall(libc::SYS_getppid) };
            }),
        }
        BATCH
    }
}

fn map_and_unmap() {
    // SAFETY: a new mapping at a place of the kernel's choice, which nothing touches before
    // it is gone again.
    unsafe {
        let place = libc::mmap(
            std::ptr::null_mut(),
            MAP_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if place != libc::MAP_FAILED {
            libc::munmap(place, MAP_BYTES);
        }
    }
}

fn raise_and_lower(times: u64) {
    // SAFETY: the break goes up and back to where it was; no other thread of this process
    // allocates meanwhile, as `memtrace doctor` has none.
    unsafe {
        let start = libc::syscall(libc::SYS_brk, 0);
        for _ in 0..times {
            libc::syscall(libc::SYS_brk, start + MAP_BYTES as libc::c_long);
            libc::syscall(libc::SYS_brk, start);
        }
    }
}

/// Nanoseconds of CPU time for one call, by kind and round.
#[derive(Default)]
struct Legs([Vec<f64>; Kind::ALL.len()]);

impl Legs {
    /// One leg of each kind. What it sends is taken out of the ring, as a recorder does.
    fn run(&mut self, mut ring: Option<&mut RingBuf<MapData>>) {
        for kind in Kind::ALL {
            let start = clock::thread_cpu();
            let (mut calls, mut passed_ns) = (0, 0);
            while passed_ns < LEG.0 {
                calls += kind.batch();
                passed_ns = clock::thread_cpu().0 - start.0;
            }
            self.0[kind as usize].push(passed_ns as f64 / calls as f64);
            if let Some(ring) = ring.as_deref_mut() {
                while ring.next().is_some() {}
            }
        }
    }

    fn slowdown(&self, with: &Self, kind: Kind) -> Slowdown {
        Slowdown::between(&self.0[kind as usize], &with.0[kind as usize])
    }
}
