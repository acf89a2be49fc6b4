//! What a recording would cost here, found by a short trial instead of a recording.

use memtrace_host::{HostFacts, Plan, ProbeCosts, ProbeWay};

/// What each way to see mmap and brk costs on this machine, or why it can't be had. Takes a
/// second for each way; the calling process must have no other thread.
#[cfg(target_os = "linux")]
pub fn probe_costs(facts: &HostFacts, plan: &Plan) -> Vec<(ProbeWay, Result<ProbeCosts, String>)> {
    use memtrace_collect::bpf;
    let measured = |way: ProbeWay| match way.obstacle(facts) {
        Some(obstacle) => Err(obstacle.reason().to_owned()),
        None => bpf::probe_costs(way, facts, plan).map_err(|error| error.to_string()),
    };
    ProbeWay::ALL.map(|way| (way, measured(way))).to_vec()
}

/// Elsewhere than on Linux there is none.
#[cfg(not(target_os = "linux"))]
pub fn probe_costs(
    _facts: &HostFacts,
    _plan: &Plan,
) -> Vec<(ProbeWay, Result<ProbeCosts, String>)> {
    Vec::new()
}
