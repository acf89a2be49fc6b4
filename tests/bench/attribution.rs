//! Who holds which kind of memory: the sums are true, and learning them disturbs nobody.

use crate::measured::Measured;
use crate::{Bench, Effort};
use anyhow::Result;
use memtrace_tests::scenario::{self, Score, Settle};
use std::time::Duration;

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "shared-once",
        run: |effort| {
            let size = effort.pick(64, 512) << 20;
            let size_word = size.to_string();
            let words = ["shm", "--bytes", &size_word, "--processes", "8"];
            let mut scores = scenario::object(WORDS, "posix", size, 8)?;
            scores.extend(total(
                effort,
                &[&words[..], &["--hold-ms", "60000"]].concat(),
            )?);
            Ok(rows("shared-once", scores))
        },
    },
    Bench {
        name: "inherited-once",
        run: |effort| {
            let size = effort.pick(128, 1_024) << 20;
            let size_word = size.to_string();
            let mut scores = scenario::inherited(WORDS, size, 8)?;
            scores.extend(total(
                effort,
                &["cow", "--bytes", &size_word, "--processes", "8"],
            )?);
            Ok(rows("inherited-once", scores))
        },
    },
    Bench {
        name: "ledger-60",
        run: |effort| {
            let settle = Settle::For(Duration::from_secs(effort.pick(30, 60)));
            Ok(rows("ledger-60", scenario::ledger(WORDS, 60, settle)?))
        },
    },
    Bench {
        name: "held-once",
        run: |effort| {
            let size = effort.pick(128, 512) << 20;
            let words = ["--budget", "100"];
            Ok(rows("held-once", scenario::holdings(&words, size)?.into()))
        },
    },
    Bench {
        name: "held-default",
        // What forks share is known when it was read, for which the default budget takes its time.
        run: |effort| {
            let size = effort.pick(128, 512) << 20;
            let [within, _, lossless] = scenario::holdings(WORDS, size)?;
            Ok(rows("held-default", vec![within, lossless]))
        },
    },
    Bench {
        name: "pss-heap",
        run: |effort| large(effort, "pss-heap", 1),
    },
    Bench {
        name: "pss-mappings",
        run: |effort| large(effort, "pss-mappings", 60_000),
    },
];

/// As a person runs it, with the budget that is the default.
const WORDS: &[&str] = &[];
/// What a program may wait for its own address space because somebody looks into it.
const WAIT_MS: f64 = 10.0;
/// A PSS is to be had within this.
const FIRST_S: f64 = 30.0;

fn total(effort: Effort, workload: &[&str]) -> Result<Vec<Score>> {
    let settle = Duration::from_secs(effort.pick(10, 30));
    scenario::total(WORDS, workload, settle)
}

fn rows(name: &str, scores: Vec<Score>) -> Vec<Measured> {
    scores
        .into_iter()
        .map(|score| Measured::score(name, score))
        .collect()
}

fn large(effort: Effort, name: &str, mappings: u64) -> Result<Vec<Measured>> {
    let size = effort.pick(1, 8) << 30;
    let found = scenario::large(WORDS, size, mappings, Settle::For(Duration::from_secs(40)))?;
    let mut all = rows(name, found.scores);
    let wait_ms = found.worst_wait_ns as f64 / 1e6;
    all.push(Measured::at_most(
        name,
        "longest wait of the process's own mmap, page faults, munmap",
        "ms",
        WAIT_MS,
        wait_ms,
    ));
    let first_s = found.first_ns.map_or(f64::INFINITY, |ns| ns as f64 / 1e9);
    let what = "first PSS after";
    all.push(Measured::at_most(name, what, "s", FIRST_S, first_s));
    Ok(all)
}
