//! Kills whose culprit is known.

mod groups;
mod shared;

use crate::golden::{RUNS, Reported, Script, boot, upid, wall};
use crate::{Analysis, HeldKind, OomFinding, Report};
use memtrace_model::tables::{FirstSeenBy, MappingKind, OomRow, OrphanedShmRow, ShmObjectRow};
use memtrace_model::{Bytes, DurationNs, Tgid};
use memtrace_report::{FORMATS, Style};

const POD: &str = "/pod";
const LIMIT: Bytes = Bytes(4 << 30);

/// A server, a helper that leaks, and the process that the kernel takes.
fn run(seconds: f64) -> Script {
    let mut run = Script::command(&["serve"], seconds);
    for (tgid, name) in [(1, "serve"), (2, "leaky"), (3, "victim")] {
        run.process(tgid, (tgid > 1).then_some(1), 0.0, name);
        run.edit(tgid, |process| {
            process.cgroup = Some(format!("{POD}/{name}").into())
        });
    }
    run.mem(1, 0.5, [2_000.0, 100.0, 0.0]);
    run.mem(2, 0.5, [100.0, 10.0, 0.0]);
    run.mem(3, 0.5, [500.0, 10.0, 0.0]);
    run
}

fn only(analysis: &Analysis) -> &OomFinding {
    let [kill] = analysis.ooms.as_slice() else {
        panic!("{:?}", analysis.ooms);
    };
    kill
}

/// Changes what the kernel reported of every kill.
fn edit_kill(run: &mut Script, change: impl Fn(&mut OomRow)) {
    for record in &mut run.rows.0 {
        if let memtrace_model::Record::Oom(row) = record {
            change(row);
        }
    }
}

/// Who grew most, by how many MiB, in how many seconds.
fn culprit(analysis: &Analysis) -> Option<(u32, i64, f64)> {
    let found = only(analysis).post_mortem.as_ref()?;
    let (grower, grown) = found.culprit()?;
    let [only] = grower.who.members.as_slice() else {
        return None;
    };
    let tgid = analysis.processes[*only].tgid?;
    Some((tgid.0, grown.0 >> 20, found.window_ns?.as_secs_f64()))
}

#[test]
fn the_culprit_is_who_grew_and_not_who_was_killed_or_held_most() {
    let mut run = run(120.0);
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((2, 1_200, 10.0)));
}

#[test]
fn a_victim_that_ended_before_its_kill_is_reported_is_among_those_who_held_memory() {
    let mut run = run(120.0);
    run.cgroup(99.0, POD, [3.0, 2.5, 0.125], Some(LIMIT));
    run.oom(3, 1, 100.0, POD, LIMIT);
    run.edit(3, |process| process.exit_boot_ns = Some(boot(99.999)));
    let report = run.reported(None, None);
    let analysis = &report.analysis;
    let kill = only(analysis);
    let found = kill.post_mortem.as_ref().expect("a post-mortem");
    let held = |name: &str| {
        let mut holders = found.holders.iter();
        holders.find_map(|holder| {
            let [member] = holder.who.members.as_slice() else {
                return None;
            };
            (&*analysis.processes[*member].name == name).then_some(holder.bytes.0 >> 20)
        })
    };
    assert_eq!([held("serve"), held("victim")], [Some(2_000), Some(500)]);
    let state = kill.holders.as_ref().expect("the state");
    let of_victim = state.holders.iter();
    let mut of_victim = of_victim.filter(|holder| Some(holder.process) == kill.victim);
    let anon = of_victim.next().and_then(|holder| holder.amounts.anon());
    assert_eq!(anon, Some(Bytes(500 << 20)));
    // The log is of that instant, and no reading before it.
    let group = state.cgroups.first().expect("the group");
    let read = (group.row.current_bytes, group.age_ns);
    assert_eq!(read, (Some(LIMIT), DurationNs(0)));
    assert_eq!(rss_at_oom(&report), Some(Bytes(510 << 20)));
    // Both hints lead to an instant at which it still held that.
    assert_eq!(hints(&report), ["+99.998s", "+99.998s"]);
}

/// What the table of processes says that the victim held when it was killed.
fn rss_at_oom(report: &Report) -> Option<Bytes> {
    let style = Style {
        section: Some("processes"),
        ..Style::default()
    };
    let csv = written("csv", report, &style);
    let mut lines = csv.lines().map(|line| line.split(','));
    let mut names = lines.next()?;
    let place = names.position(|name| name == "rss_at_oom_bytes")?;
    let mut victim = lines.find(|fields| fields.clone().any(|field| field == "victim"))?;
    victim.nth(place)?.parse().ok().map(Bytes)
}

/// The instants that the report leads to.
fn hints(report: &Report) -> Vec<String> {
    let text = written("text", report, &Style::default());
    let words: Vec<&str> = text.split_whitespace().collect();
    let hints = words.windows(2).filter(|pair| pair[0] == "--at");
    let hints = hints.map(|pair| pair[1].trim_end_matches(['`', '.']).to_owned());
    hints.collect()
}

#[test]
fn the_report_leads_to_an_instant_that_is_not_after_the_kill() {
    let killed = || {
        let mut run = run(120.0);
        run.oom(3, 1, 100.0677, POD, LIMIT);
        run.edit(3, |process| process.exit_boot_ns = Some(boot(100.068)));
        run
    };
    let hints = hints(&killed().reported(None, None));
    assert_eq!(hints, ["+100.067s", "+100.067s"]);
    let state = killed().analyzed(Some(&hints[0])).at.expect("a state");
    assert_eq!(state.holders.len(), 3);
}

fn written(format: &str, report: &Report, style: &Style) -> String {
    let mut formats = FORMATS.iter();
    let format = formats.find(|one| one.name == format).expect("a format");
    let mut out = Vec::new();
    let written = format.write(&mut report.clone(), style, &mut out);
    written.expect("a Vec can be written to");
    String::from_utf8(out).expect("a report is UTF-8")
}

#[test]
fn a_victim_of_which_another_group_was_known_grew_by_nothing_where_it_held_its_memory_throughout() {
    let mut run = run(120.0);
    run.edit(3, |process| process.cgroup = Some("/elsewhere".into()));
    run.mem(2, 95.0, [400.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((2, 300, 10.0)));
}

#[test]
fn a_kill_is_examined_though_a_neighbour_is_killed_again_and_again() {
    let mut run = run(120.0);
    for second in 1..40 {
        run.put(OomRow {
            trigger_tgid: Some(Tgid(9_000)),
            constraint: Some("CONSTRAINT_MEMCG".to_owned()),
            memcg: Some("/neighbour".to_owned()),
            ..OomRow::of_victim(
                wall(f64::from(second)),
                boot(f64::from(second)),
                Tgid(9_000),
            )
        });
    }
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let own: Vec<bool> = analysis
        .ooms
        .iter()
        .map(|kill| kill.post_mortem.is_some())
        .collect();
    assert_eq!(own.len(), 40);
    assert!(own[39] && own[14] && !own[15], "{own:?}");
}

#[test]
fn the_shortest_window_with_growth_that_matters_is_reported() {
    let mut run = run(1_000.0);
    run.mem(2, 860.0, [1_300.0, 10.0, 0.0]);
    run.mem(2, 895.0, [1_310.0, 10.0, 0.0]);
    run.oom(3, 1, 900.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((2, 1_210, 60.0)));
}

#[test]
fn a_window_is_cut_at_the_start_of_the_recording() {
    let mut run = run(40.0);
    run.mem(2, 20.0, [700.0, 10.0, 0.0]);
    run.mem(2, 31.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 32.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let lengths: Vec<i64> = found
        .windows
        .iter()
        .map(|length| length.0 / 1_000_000_000)
        .collect();
    assert_eq!(lengths, [1, 10, 32]);
    assert_eq!(culprit(&analysis).map(|(tgid, _, _)| tgid), Some(2));
}

#[test]
fn who_lives_under_another_limit_is_not_to_blame() {
    let mut run = run(120.0);
    run.edit(2, |process| process.cgroup = Some("/elsewhere".into()));
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.mem(1, 96.0, [2_300.0, 100.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), Some((1, 300, 10.0)));
}

#[test]
fn who_was_growing_when_the_limit_was_met_is_named_and_not_who_grew_most_before() {
    let mut run = run(120.0);
    // A worker that grew by 1.3 GiB and is flat for 24 s, and a trainer that grows until the end.
    for second in 0..36 {
        run.mem(
            1,
            40.0 + f64::from(second),
            [2_000.0 + f64::from(second) * 37.0, 100.0, 0.0],
        );
    }
    for second in 0..24 {
        run.mem(
            2,
            76.0 + f64::from(second),
            [419.0 + f64::from(second) * 21.2, 10.0, 0.0],
        );
    }
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    assert_eq!(culprit(&analysis), Some((2, 806, 60.0)));
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(!found.is_sudden && found.leak.is_none(), "{found:?}");
}

#[test]
fn who_had_stopped_is_not_named_where_another_went_on_until_the_kill() {
    let mut run = run(120.0);
    for tenth in 0..=40 {
        let at = 90.0 + f64::from(tenth) / 10.0;
        run.mem(1, at, [2_000.0 + f64::from(tenth) * 7.5, 100.0, 0.0]);
    }
    for tenth in 0..100 {
        let at = 90.0 + f64::from(tenth) / 10.0;
        run.mem(2, at, [100.0 + f64::from(tenth) * 2.0, 10.0, 0.0]);
    }
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    assert_eq!(culprit(&analysis), Some((2, 198, 10.0)));
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let grown = found.growers[1].grown_bytes[1];
    assert_eq!(
        grown.map(|grown| grown.0 >> 20),
        Some(300),
        "still reported"
    );
}

#[test]
fn who_grew_more_before_is_named_beside_who_went_on() {
    // By 6 MiB in each tenth of a second of the first five, and then not, or by a little.
    for (later, said) in [
        (0.0, "294 MiB in that time, and had stopped"),
        (0.5, "309 MiB in that time, 4.5 MiB of it in the last 1s"),
    ] {
        let mut run = run(20.0);
        for tenth in 0..80 {
            let (at, tenth) = (1.0 + f64::from(tenth) / 10.0, f64::from(tenth));
            let grown = tenth.min(49.0) * 6.0 + (tenth - 49.0).max(0.0) * later;
            run.mem(1, at, [2_000.0 + grown, 100.0, 0.0]);
            run.mem(2, at, [100.0 + tenth * 2.0, 10.0, 0.0]);
        }
        run.oom(3, 1, 9.0, POD, LIMIT);
        let report = run.reported(None, None);
        let text = written("text", &report, &Style::default());
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let grown = format!(
            "2 leaky grew by 158 MiB in the 9.0s before; 1 serve had grown by {said}; the victim had"
        );
        assert!(text.contains(&grown), "{text}");
    }
}

#[test]
fn who_was_growing_is_named_also_where_ten_seconds_of_it_are_little() {
    let mut run = run(120.0);
    // 512 GiB are in use, of which one percent comes in 17 s.
    for second in 0..60 {
        let at = 40.0 + f64::from(second);
        run.mem(1, at, [200_000.0 + f64::from(second) * 300.0, 100.0, 0.0]);
    }
    for second in 0..36 {
        let at = 40.0 + f64::from(second);
        run.mem(2, at, [100_000.0 + f64::from(second) * 1_000.0, 10.0, 0.0]);
    }
    run.oom(3, 1, 100.0, POD, Bytes(512 << 30));
    assert_eq!(culprit(&run.analyzed(None)), Some((1, 17_700, 60.0)));
}

/// A leak of 10 MiB a second for 90 s, and 900 MiB within the last 0.3 s by `spiker`.
fn leak_and_spike(spiker: u32) -> Analysis {
    let mut run = run(120.0);
    let leaked = |second: i32| 100.0 + f64::from(second) * 10.0;
    for second in 0..90 {
        run.mem(2, 10.0 + f64::from(second), [leaked(second), 10.0, 0.0]);
    }
    let before = if spiker == 2 { leaked(89) } else { 2_000.0 };
    run.mem(spiker, 99.7, [before + 900.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    run.analyzed(None)
}

#[test]
fn a_spike_is_distinguished_from_the_leak_beside_it() {
    let analysis = leak_and_spike(1);
    assert_eq!(culprit(&analysis), Some((1, 900, 1.0)));
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert!(found.is_sudden);
    let leak = found.leak.as_ref().expect("a leak");
    assert_eq!(leak.who.who.name.as_deref(), Some("leaky"));
    assert_eq!(
        (leak.grown_bytes.0 >> 20, leak.window_ns),
        (890, found.windows[3]),
        "{leak:?}"
    );
}

#[test]
fn a_spike_is_distinguished_from_the_leak_of_the_same_process() {
    let analysis = leak_and_spike(2);
    let (tgid, grown, window) = culprit(&analysis).expect("a culprit");
    assert_eq!((tgid, window), (2, 1.0));
    assert!((900..=910).contains(&grown), "{grown}");
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let leak = found.leak.as_ref().expect("a leak");
    assert!(found.is_sudden && leak.is_first, "{leak:?}");
    assert!(
        (870..=890).contains(&(leak.grown_bytes.0 >> 20)),
        "{leak:?}"
    );
}

#[test]
fn children_that_write_to_what_they_inherited_grew_by_the_copies_alone() {
    let mut run = run(120.0);
    run.mem(1, 60.0, [1_000.0, 100.0, 0.0]);
    for child in 10..15 {
        run.process(child, Some(1), 90.0, "serve");
        run.edit(child, |process| {
            process.cgroup = Some(POD.into());
            process.inherited_anon_bytes = Some(Bytes(1_000 << 20));
        });
        // Nothing of its own: all pages are the parent's, and stay as many when they are copied.
        run.mem(child, 90.1, [1_000.0, 10.0, 0.0]);
    }
    run.oom(10, 11, 100.0, POD, Bytes(3_120 << 20));
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let (grower, grown) = found.culprit().expect("a culprit");
    // 3,000 MiB of anonymous memory, of which parent, leak and victim have 1,600 alone.
    assert_eq!(grower.who.members.len(), 5);
    assert!((1_398..=1_400).contains(&(grown.0 >> 20)), "{grown:?}");
    assert!(grower.is_by_copies(found.reported.expect("a window")));
    let held: i64 = found.growers.iter().map(|one| one.bytes.0 >> 20).sum();
    assert!(
        (2_995..=3_000).contains(&held),
        "{held} in a group of 3,120 MiB"
    );
}

#[test]
fn what_was_copied_before_a_kill_is_unknown_where_the_kernels_account_is() {
    let copied = |is_account_known: bool| {
        let mut run = run(120.0);
        run.process(10, Some(1), 50.0, "loader");
        run.edit(10, |process| process.cgroup = Some(POD.into()));
        run.inherits(10, 500.0);
        run.mem(10, 51.0, [500.0, 10.0, 0.0]);
        run.mem(10, 95.0, [900.0, 10.0, 0.0]);
        if is_account_known {
            run.cgroup(80.0, POD, [3.0, 2.75, 0.0], Some(LIMIT));
        }
        run.oom(3, 1, 100.0, POD, LIMIT);
        let analysis = run.analyzed(None);
        let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
        let loader = found.growers.iter().find(|one| &*one.shape == "loader");
        let loader = loader.expect("the loader");
        assert!(loader.grown_bytes[1].is_some());
        // Before the fork it had nothing to copy.
        assert!(loader.copied_bytes[3].is_some());
        loader.copied_bytes[1].is_some()
    };
    assert_eq!([copied(true), copied(false)], [true, false]);
}

#[test]
fn who_was_there_with_unknown_memory_has_unknown_growth() {
    let grown = |is_known: bool, seen_by: FirstSeenBy| {
        let mut run = run(120.0);
        run.edit(2, |process| process.first_seen_by = Some(seen_by));
        if !is_known {
            run.put(crate::golden::mem_row(upid(Tgid(2)).0, boot(0.6).0, None));
        }
        run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
        run.oom(3, 1, 100.0, POD, LIMIT);
        let analysis = run.analyzed(None);
        let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
        let leaky = found.growers.iter().find(|one| &*one.shape == "leaky");
        leaky.expect("a line").grown_bytes[1].map(|grown| grown.0 >> 20)
    };
    assert_eq!(grown(true, FirstSeenBy::Poll), Some(1_200));
    assert_eq!(grown(false, FirstSeenBy::Poll), None);
    assert_eq!(grown(false, FirstSeenBy::Fork), None);
}

#[test]
fn those_who_matter_have_a_line_each_and_small_ones_share_one() {
    let mut run = run(120.0);
    for (loader, grown) in [(10, 600.0), (11, 500.0), (12, 20.0), (13, 10.0)] {
        run.process(loader, Some(1), 50.0, "loader");
        run.edit(loader, |process| process.cgroup = Some(POD.into()));
        run.mem(loader, 51.0, [10.0, 0.0, 0.0]);
        run.mem(loader, 95.0, [10.0 + grown, 0.0, 0.0]);
    }
    run.oom(3, 1, 100.0, POD, LIMIT);
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    let of_loaders = found.growers.iter().filter(|one| &*one.shape == "loader");
    let sizes: Vec<usize> = of_loaders.map(|one| one.who.process_count).collect();
    assert_eq!(sizes, [1, 1, 2]);
}

#[test]
fn the_leak_of_the_tree_before_a_kill_is_reported_though_its_sum_falls_by_it() {
    let mut run = Script::command(&["serve"], 900.0);
    run.process(1, None, 0.0, "serve");
    run.process(2, Some(1), 1.0, "worker");
    for tgid in [1, 2] {
        run.edit(tgid, |process| process.cgroup = Some(POD.into()));
    }
    run.mem(1, 0.5, [500.0, 100.0, 0.0]);
    for second in 0..600 {
        run.mem(
            2,
            2.0 + f64::from(second),
            [100.0 + f64::from(second) * 4.0, 10.0, 0.0],
        );
    }
    run.oom(2, 1, 602.0, POD, LIMIT);
    run.exit(1, 890.0, 1);
    let analysis = run.analyzed(None);
    let growth = analysis.growth.expect("a growth");
    assert_eq!(growth.verdict, crate::Verdict::Growing, "{growth:?}");
    let mib_per_hour = growth.bytes_per_hour / 1024.0 / 1024.0;
    assert!(
        (mib_per_hour - 4.0 * 3_600.0).abs() < 200.0,
        "{mib_per_hour}"
    );
    assert!(growth.to.boot_ns <= boot(602.1));
}

#[test]
fn a_process_that_was_found_late_has_unknown_growth() {
    let mut run = run(120.0);
    run.process(9, None, -500.0, "adopted");
    run.edit(9, |process| {
        process.cgroup = Some(POD.into());
        process.first_seen_boot_ns = boot(95.0);
    });
    run.mem(9, 95.0, [1_500.0, 0.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    assert_eq!(culprit(&run.analyzed(None)), None);
}

#[test]
fn what_was_read_after_the_kill_tells_nothing_of_it() {
    let mut run = run(120.0);
    run.cgroup(80.0, POD, [2.0, 1.5, 0.125], Some(LIMIT));
    run.cgroup(99.0, POD, [3.75, 3.5, 0.125], Some(LIMIT));
    run.cgroup(100.2, POD, [0.5, 0.25, 0.125], Some(LIMIT));
    run.mem(2, 95.0, [1_300.0, 10.0, 0.0]);
    run.oom(3, 1, 100.0, POD, LIMIT);
    // As where the kernel log can't be read in full.
    edit_kill(&mut run, |row| {
        row.memcg_anon_bytes = None;
    });
    let analysis = run.analyzed(None);
    let found = only(&analysis).post_mortem.as_ref().expect("a post-mortem");
    assert_eq!(found.kinds_age_ns, DurationNs(1_000_000_000));
    let anon = found
        .kinds
        .iter()
        .find(|line| line.kind == HeldKind::Anonymous);
    let anon = anon.expect("anonymous memory");
    assert_eq!(anon.bytes.0 >> 20, 3_584);
    assert_eq!(anon.grown_bytes.map(|grown| grown.0 >> 20), Some(2_048));
    let shared = found
        .kinds
        .iter()
        .find(|line| line.kind == HeldKind::Shared);
    assert!(shared.expect("shared memory").is_ruled_out);
}
