//! What memory is inside of a process, and why it came: whether the report is right of programs whose
//! cause is known.

use crate::measured::Measured;
use crate::{Bench, Effort};
use anyhow::Result;
use memtrace_tests::scenario::{self, INSIDES, Inside, Reported};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "inside",
        run: causes,
    },
    Bench {
        name: "inside-diff",
        run: diff,
    },
];

/// As a person runs it.
const WORDS: &[&str] = &[];
/// So many run beside each other: on two CPUs more would keep each other from growing.
const AT_ONCE: usize = 4;

fn causes(effort: Effort) -> Result<Vec<Measured>> {
    let runs = effort.pick(1, 10);
    let mut text: Vec<Reported> = Vec::new();
    let possible: Vec<Inside> = INSIDES.to_vec();
    for inside in &possible {
        inside.is_possible()?;
    }
    for _ in 0..runs {
        for some in possible.chunks(AT_ONCE) {
            text.extend(scenario::reported_inside(WORDS, some)?);
        }
    }
    let mut rows: Vec<Measured> = possible
        .iter()
        .map(|inside| {
            let own = text.iter().filter(|text| text.inside.name == inside.name);
            let own: Vec<&Reported> = own.collect();
            let right = own.iter().filter(|text| text.is_right()).count();
            let wrong = own.iter().find(|text| !text.is_right());
            let said = wrong
                .or(own.first())
                .and_then(|text| text.sentence.as_deref());
            let said = said.unwrap_or_default();
            let what = format!("runs of {}: called {}", inside.name, inside.cause);
            Measured::share("inside", &what, right, own.len(), 1.0).with_note(said.to_owned())
        })
        .collect();
    let right = text.iter().filter(|text| text.is_right()).count();
    let leaks = text.iter().filter(|text| text.is_wrong_leak()).count();
    let sums = text.iter().filter(|text| text.off_by <= 0.01).count();
    rows.push(Measured::share(
        "inside",
        "all runs: the cause is right",
        right,
        text.len(),
        0.95,
    ));
    rows.push(Measured::at_most(
        "inside",
        "runs whose memory is wrongly called live",
        "",
        0.0,
        leaks as f64,
    ));
    let what = "runs in which the parts add up to anonymous memory within 1 %";
    rows.push(Measured::share("inside", what, sums, text.len(), 1.0));
    Ok(rows)
}

/// 64 threads that free what they allocated, before and after MALLOC_ARENA_MAX=2.
fn diff(_: Effort) -> Result<Vec<Measured>> {
    let diff = scenario::inside_diff(WORDS)?;
    let changes = diff["layouts"].as_array().cloned().unwrap_or_default();
    let arenas = changes
        .iter()
        .find(|change| change["part"] == "glibc_arenas");
    let fell = arenas.map_or(0, |change| {
        -change["rss"]["change_bytes"].as_i64().unwrap_or_default()
    });
    let mebibytes = fell as f64 / f64::from(1 << 20);
    let what = "the diff says that arenas hold less";
    Ok(vec![Measured::at_least(
        "inside-diff",
        what,
        "MiB",
        64.0,
        mebibytes,
    )])
}
