//! What pages of docs/ show of reports is what reports say.

use super::*;

#[test]
fn the_page_on_reports_shows_what_a_report_says() {
    let runs = RUNS
        .iter()
        .filter(|(name, ..)| *name == "trainer_with_vllm");
    for (_, script, at) in runs {
        let text = written(
            &FORMATS[0],
            &script().reported(*at, None),
            &Style::default(),
        );
        let page = include_str!("../../../../../docs/report.md");
        assert_shown(page, &text, "Processes by their own peak");
    }
}

#[test]
fn pages_show_parts_of_reports_as_they_are_written_today() {
    macro_rules! page {
        ($name:literal) => {
            include_str!(concat!("../../../../../", $name))
        };
    }
    macro_rules! report {
        ($name:literal) => {
            include_str!(concat!(
                "../snapshots/memtrace_analyze__sections__tests__",
                $name,
                ".text.snap"
            ))
        };
    }
    let reports = page!("docs/report.md");
    let shown = [
        (
            page!("README.md"),
            report!("trainer_with_vllm"),
            "memtrace: ",
            "  Limit: ",
        ),
        (reports, report!("vllm_start_up"), "Phases: ", "  +26.0s"),
        (reports, report!("steps_that_leak"), "  STAGE ", "   START"),
        (
            reports,
            report!("phases_on_gpus.stage"),
            "By role, at",
            "On each GPU",
        ),
        (
            page!("docs/oom.md"),
            report!("oom_kill"),
            "OOM kill: ",
            "  slab",
        ),
        (
            page!("docs/leak.md"),
            report!("trainer_with_vllm"),
            "  Growth: ",
            "  Limit: ",
        ),
        (
            page!("docs/inside.md"),
            report!("inside"),
            "  710 engine",
            "  100 MiB",
        ),
        (
            page!("docs/gpu.md"),
            report!("vllm_on_gpus"),
            "  vllm.sleep at",
            "  Contexts",
        ),
        (
            page!("docs/gpu.md"),
            report!("gpu_by_calls"),
            "  2 × vLLM worker hold",
            "  At +78.1s",
        ),
        (
            page!("docs/gpu.md"),
            report!("gpu_by_calls"),
            "  vllm.sleep at",
            "  vllm.wake_up",
        ),
        (
            page!("docs/torch.md"),
            report!("torch_snapshots"),
            "What torch held",
            "Processes by",
        ),
    ];
    for (page, report, from, until) in shown {
        let start = report.find(&format!("\n{from}")).unwrap() + 1;
        assert_shown(page, &report[start..], until);
    }
}

#[test]
fn every_column_is_described_in_its_order() {
    let described: Vec<&str> = include_str!("../../../../../docs/report.md")
        .lines()
        .skip_while(|line| *line != "| column | meaning |")
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(name, _)| name)
        .collect();
    let run = Script::command(&["a"], 30.0);
    let csv = written(format("csv"), &run.reported(None, None), &Style::default());
    let names: Vec<&str> = csv
        .lines()
        .take(1)
        .flat_map(|line| line.split(','))
        .collect();
    assert_eq!(described, names);
}
