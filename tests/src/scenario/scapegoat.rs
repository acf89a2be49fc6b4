//! An OOM kill whose victim is not the one to blame: the report says who is.

use super::book::Score;
use crate::cgroup::MemoryGroup;
use crate::recorder::record;
use crate::workload::{self, number};
use anyhow::{Context, Result};
use serde_json::Value;

/// A process grows in a group of 300 MiB until the kernel kills another one.
///
/// # Errors
/// When the run itself fails.
pub fn scapegoat(words: &[&str]) -> Result<Vec<Score>> {
    const LIMIT_BYTES: i64 = 300 << 20;
    // Before 6.2 a thread holds back what its last 64 page faults brought.
    const HELD_BACK_BYTES: i64 = 64 << 12;
    let group = MemoryGroup::new("memtrace-scapegoat", LIMIT_BYTES.cast_unsigned())?;
    let command = group.inside(&workload::command(&["scapegoat"])?);
    let recorded = record(words, &command)?;
    let lines = workload::parse(&recorded.output)?;
    let truth = lines.first().context("the workload said nothing")?;
    let (victim, culprit) = (number(truth, "victim")?, number(truth, "culprit")?);
    let (held, grown) = (number(truth, "held_bytes")?, number(truth, "grown_bytes")?);

    let shown: Value = recorded.report(&[])?;
    let kills = shown["oom_kills"].as_array().context("no oom_kills")?;
    let kill = kills.iter().find(|kill| kill["victim_pid"] == victim);
    let kill = kill.with_context(|| format!("no kill of {victim} in {kills:?}"))?;
    let found = &kill["post_mortem"];
    let first = &found["growers"][0];
    let longest = first["grown_bytes"].as_array().and_then(|all| all.last());
    let longest = longest.and_then(Value::as_i64);
    // The group was full: what the victim did not hold, the culprit did, but for page tables
    // and the parent. What it says itself can be more: it goes on until it is ended.
    let at_kill = LIMIT_BYTES - held;
    let slack = LIMIT_BYTES / 16;
    let anon = found["kinds"].as_array().into_iter().flatten();
    let anon = anon.clone().find(|kind| kind["kind"] == "anonymous");
    let anon = anon.and_then(|kind| kind["bytes"].as_i64());
    let mut ruled_out = Score::new("page cache and slab are ruled out, with their figures");
    for kind in found["kinds"].as_array().into_iter().flatten() {
        if matches!(
            kind["kind"].as_str(),
            Some("page_cache" | "slab" | "page_tables")
        ) {
            ruled_out.case(kind["is_ruled_out"] == true, || kind.to_string());
        }
    }
    let text = recorded.report_text(&[])?;
    let answer = [
        format!("  What happened: {victim} "),
        " was killed because".to_owned(),
        "(limit 300 MiB) was full".to_owned(),
        format!("{culprit} "),
        "grew ".to_owned(),
        "the victim had".to_owned(),
    ];
    Ok(vec![
        Score::of(
            "the workload was killed as planned",
            truth["killed"] == true,
            || truth.to_string(),
        ),
        Score::of("the culprit is who grew", first["pid"] == culprit, || {
            format!("{found}")
        }),
        Score::of(
            "by how much it grew is the truth",
            longest.is_some_and(|found| (at_kill - slack..=at_kill).contains(&found))
                && longest <= Some(grown + number(truth, "step_bytes")?),
            || format!("{longest:?}, at the kill {at_kill}, in all {grown}"),
        ),
        Score::of(
            "what the victim held is reported",
            kill["victim_anon_bytes"]
                .as_i64()
                .is_some_and(|found| (held - HELD_BACK_BYTES..held + (4 << 20)).contains(&found)),
            || kill.to_string(),
        ),
        Score::of(
            "anonymous memory filled the group, by the kernel's account of the instant",
            anon.is_some_and(|anon| anon * 10 > LIMIT_BYTES * 9) && found["kinds_age_ns"] == 0,
            || format!("{found}"),
        ),
        ruled_out,
        Score::of(
            "one sentence has the story",
            // One of several, where the culprit met the limit again before it was ended.
            text.lines()
                .any(|line| answer.iter().all(|part| line.contains(part))),
            || text.clone(),
        ),
    ])
}
