//! What must be exact: who is there, and how high they went.

use crate::Bench;
use crate::measured::Measured;
use anyhow::Result;
use memtrace_tests::scenario::{self, Score};

pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "forkstorm",
        run: |effort| {
            let scores = scenario::forkstorm(WORDS, effort.pick(200, 2_000))?;
            Ok(rows("forkstorm", scores))
        },
    },
    Bench {
        name: "vforkchild",
        run: |_| Ok(rows("vforkchild", scenario::vforkchild(WORDS)?)),
    },
    Bench {
        name: "spike-32m",
        run: |effort| spikes(32 << 20, effort.pick(5, 30)),
    },
    Bench {
        name: "spike-1g",
        run: |effort| spikes(1 << 30, effort.pick(1, 30)),
    },
    Bench {
        name: "daemons",
        run: |_| Ok(rows("daemons", scenario::daemons(WORDS)?)),
    },
    Bench {
        name: "execs",
        run: |_| Ok(rows("execs", scenario::execs(WORDS)?)),
    },
    Bench {
        name: "oom",
        run: |_| Ok(rows("oom", scenario::oom(WORDS)?)),
    },
];

/// As a person runs it, apart from the progress line.
const WORDS: &[&str] = &["--quiet"];

fn rows(name: &str, scores: Vec<Score>) -> Vec<Measured> {
    scores
        .into_iter()
        .map(|score| Measured::score(name, score))
        .collect()
}

fn spikes(bytes: u64, count: usize) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    for kind in ["anon", "shm", "thp"] {
        let scores = scenario::spikes(WORDS, kind, bytes, count)?;
        all.extend(rows(&format!("spike-{}m-{kind}", bytes >> 20), scores));
    }
    Ok(all)
}
