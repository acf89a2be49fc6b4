//! What is said of a leak.

use super::*;

#[test]
fn the_sentence_about_a_leak_names_who_leaks_most() {
    use memtrace_model::tables::MarkKind::{Begin, End};
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 0.0, "leaky");
    for step in 0..20_u32 {
        let at = 1.0 + f64::from(step) * 4.0;
        run.numbered_mark(Some(1), at, Begin, "step", Some(step));
        run.mem(1, at + 0.1, [100.0 + f64::from(step), 0.0, 0.0]);
        run.mem(2, at + 0.2, [100.0 + f64::from(step) * 2.0, 0.0, 0.0]);
        run.numbered_mark(Some(1), at + 2.0, End, "step", Some(step));
    }
    let report = written(&FORMATS[0], &run.reported(None, None), &Style::default());
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = "from step 5 to 19; most of it in 2 leaky (2.0 MiB).";
    assert!(report.contains(text), "{report}");
}

#[test]
fn the_sentence_about_a_leak_names_a_role_and_the_process_of_it_that_leaks() {
    use memtrace_model::tables::MarkKind::{Begin, End};
    let mut run = Script::command(&["a"], 200.0);
    run.process(1, None, 0.0, "a");
    for (tgid, rank) in [(2, "TP0"), (3, "TP1")] {
        run.process(tgid, Some(1), 0.0, "VLLM::Worker");
        run.is(tgid, "vLLM", "worker", Some(rank));
        run.mem(tgid, 0.5, [100.0, 0.0, 0.0]);
    }
    for step in 0..40_u32 {
        let at = 1.0 + f64::from(step) * 4.9;
        run.numbered_mark(Some(1), at, Begin, "step", Some(step));
        run.mem(1, at + 0.1, [100.0, 0.0, 0.0]);
        run.mem(3, at + 0.2, [100.0 + f64::from(step) * 2.0, 0.0, 0.0]);
        run.numbered_mark(Some(1), at + 2.0, End, "step", Some(step));
    }
    let report = written(&FORMATS[0], &run.reported(None, None), &Style::default());
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = "What the tree holds at the end of step grows by 2.0 MiB";
    assert!(report.contains(text), "{report}");
    let text = "most of it in 2 × vLLM worker, chiefly 3 vLLM worker TP1 (2.0 MiB).";
    assert!(report.contains(text), "{report}");
}

#[test]
fn the_window_to_look_at_next_ends_before_who_grew_does() {
    let mut runs = RUNS.iter();
    let (_, script, _) = runs
        .find(|(name, ..)| *name == "trainer_with_vllm")
        .expect("the run");
    let lines = answer::lines(&script().analyzed(None));
    let command = lines.into_iter().find_map(|line| line.command);
    let command = command.expect("a command");
    let option = |name: &str| {
        let mut words = command.split(' ').skip_while(|word| *word != name);
        words.nth(1).map(|at| at.parse().expect("a moment"))
    };
    let report = script().reported_with(Options {
        from: option("--from"),
        to: option("--to"),
        ..Options::default()
    });
    let window = report.analysis.phase.expect("a window");
    let mut holders = window.holders.iter();
    let grower = holders.find(|holder| holder.who.pid == Some(Tgid(22924)));
    let gained = grower.expect("who grew").rss_delta_bytes;
    assert!(
        gained.is_some_and(|gained| gained.0 > 0),
        "{command}: {gained:?}"
    );
}

#[test]
fn the_kind_of_a_leak_is_known_though_its_process_gave_all_back() {
    let mut run = Script::command(&["a"], 202.0);
    run.process(1, None, 0.0, "a");
    for step in 0..40_u32 {
        let (at, leaked) = (1.0 + f64::from(step) * 5.0, 2.0 * f64::from(step));
        // A temporary beside it comes and goes.
        run.mem(1, at, [33.0 + leaked, 2.0, 0.0]);
        run.mem(1, at + 1.0, [3.0 + leaked, 2.0, 0.0]);
    }
    for step in 0..10_u32 {
        let at = 201.0 + f64::from(step) * 0.001;
        run.mem(1, at, [80.0 - 8.0 * f64::from(step), 2.0, 0.0]);
    }
    run.exit(1, 201.5, 0);
    let growth = run.analyzed(None).processes[0]
        .growth
        .clone()
        .expect("a trend");
    assert_eq!(growth.verdict, crate::Verdict::Growing);
    assert_eq!(growth.kind, Some(memtrace_model::Kind::Anon));
}

#[test]
fn the_section_on_growth_names_who_the_first_lines_name() {
    let mut run = Script::command(&["a"], 100.0);
    run.process(1, None, 0.0, "a");
    run.process(2, Some(1), 30.0, "leaky");
    // Beside so much the rise of all together is little.
    run.mem(1, 0.1, [2000.0, 0.0, 0.0]);
    for step in 0..70_u32 {
        let at = 30.0 + f64::from(step);
        run.mem(2, at, [100.0 + 5.0 * f64::from(step), 0.0, 0.0]);
    }
    let report = run.reported(None, None);
    assert!(
        report.analysis.growth.is_none(),
        "{:?}",
        report.analysis.growth
    );
    let style = Style {
        section: Some("growth"),
        ..Style::default()
    };
    let text = written(&FORMATS[0], &report, &style);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("Growth: 2 leaky rose by"), "{text}");
}
