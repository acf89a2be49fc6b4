//! OOM kills whose cause is known, at the limit of a cgroup, each with three other processes that
//! hold more or less: the report names the cause, who grew, and who held most.

use super::book::Score;
use crate::cgroup::MemoryGroup;
use crate::recorder::{Recorded, record, record_in};
use crate::workload;
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A report begins with so many lines that are the answer.
const FIRST_LINES: usize = 12;
const LIMIT_BYTES: i64 = 256 << 20;

/// What is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// One grows, and is the largest.
    Single,
    /// One grows, and a small one meets the limit.
    SmallTrigger,
    /// One leaks, and another one takes the rest at once.
    LeakBesideSpike,
    /// One writes to a file of a tmpfs.
    TmpfsWriter,
    /// One grows, and another one was offered to the kernel.
    OfferedVictim,
    /// Children write to what they inherited.
    CopyOnWrite,
    /// One grows in a group full of page cache.
    PageCache,
    /// The limit is that of a group above the one that grows.
    ChildGroup,
    /// The recorder lives in the group.
    RecorderInside,
    /// The root of the tree grows, and is killed.
    Root,
}

impl Stage {
    fn kind(self) -> &'static str {
        match self {
            Self::Single | Self::RecorderInside => "single",
            Self::SmallTrigger => "trigger",
            Self::LeakBesideSpike => "spike",
            Self::TmpfsWriter => "tmpfs",
            Self::OfferedVictim => "offered",
            Self::CopyOnWrite => "copies",
            Self::PageCache => "cache",
            Self::ChildGroup => "groups",
            Self::Root => "root",
        }
    }
}

/// A file that is removed in the end.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        // A stage that has no file leaves none.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Stages a kill, and holds the report against it.
///
/// # Errors
/// When the run itself fails.
pub fn staged(words: &[&str], stage: Stage) -> Result<Vec<Score>> {
    let name = format!("memtrace-staged-{}", stage.kind());
    let outside = MemoryGroup::new(&format!("{name}-outside"), 1 << 30)?;
    let group = MemoryGroup::new(&name, LIMIT_BYTES.cast_unsigned())?;
    // Two runs beside each other would fill one file.
    let file = format!("{name}-{}", std::process::id());
    let file = match stage {
        Stage::TmpfsWriter => Path::new("/dev/shm").join(file),
        _ => std::env::temp_dir().join(file),
    };
    let file = Removed(file);
    let [path, away] = [&file.0, outside.dir()].map(|path| path.display().to_string());
    let limit = LIMIT_BYTES.to_string();
    let base = ["staged", "--kind", stage.kind(), "--limit", &limit];
    let (recorded, truth) = match stage {
        Stage::ChildGroup => {
            let (own, beside) = (group.below("own")?, group.below("beside")?);
            let at = beside.dir().display().to_string();
            let places = ["--beside", &at, "--outside", &away];
            let command = workload::command(&[&base[..], &places].concat())?;
            run(record(words, &own.inside(&command))?)?
        }
        Stage::RecorderInside => {
            let command = workload::command(&base)?;
            run(record_in(words, &command, |recorder| {
                group.inside(&recorder)
            })?)?
        }
        _ => {
            let command = workload::command(&[&base[..], &["--file", &path]].concat())?;
            run(record(words, &group.inside(&command))?)?
        }
    };
    let shown: Value = recorded.report(&[])?;
    let text = recorded.report_text(&[])?;
    let kills = shown["oom_kills"].as_array().context("no oom_kills")?;
    let is_of_group = |kill: &&Value| {
        let cgroup = kill["cgroup"].as_str().unwrap_or_default();
        group.dir().ends_with(cgroup.trim_start_matches('/')) && !cgroup.is_empty()
    };
    let kill = kills.iter().find(is_of_group);
    let kill = kill.with_context(|| format!("no kill at the limit of {name} in {kills:?}"))?;
    let found = &kill["post_mortem"];
    let mut scores = vec![Score::of(
        "the limit that was hit is the cause",
        kill["cgroup_limit_bytes"] == LIMIT_BYTES && kill["constraint"] == "CONSTRAINT_MEMCG",
        || kill.to_string(),
    )];
    if let Some(victim) = truth.get("victim") {
        let is_reported = &kill["victim_pid"] == victim;
        scores.push(Score::of("the victim is reported", is_reported, || {
            kill.to_string()
        }));
    }
    scores.push(match stage {
        Stage::TmpfsWriter => wrote(found, &truth, &file.0),
        Stage::CopyOnWrite => copied(found),
        _ => Score::of(
            "who grew when the limit was met is named first",
            found["growers"][0]["pid"] == truth["grower"] && found["grown_kind"].is_null(),
            || format!("{truth}: {found}"),
        ),
    });
    scores.push(largest(found, &truth));
    scores.push(sum(found));
    if let Some(trigger) = truth.get("trigger") {
        let is_reported = &kill["trigger_pid"] == trigger;
        scores.push(Score::of("the trigger is reported", is_reported, || {
            kill.to_string()
        }));
    }
    if let Some(leaker) = truth.get("leaker") {
        scores.push(Score::of(
            "the leak is distinguished from the spike",
            found["is_sudden"] == true && &found["leak"]["pid"] == leaker,
            || format!("{truth}: {found}"),
        ));
    }
    if let Some(outside) = truth.get("outside") {
        let all = found["growers"].as_array().into_iter().flatten();
        let is_reported = all.clone().any(|one| &one["pid"] == outside);
        scores.push(Score::of(
            "who lives outside of the group is no part of it",
            !is_reported,
            || format!("{truth}: {found}"),
        ));
    }
    let who = ["grower", "writer"].iter().find_map(|key| truth.get(*key));
    let who = who.map_or_else(|| "5 × ".to_owned(), |pid| format!("{pid} "));
    scores.push(Score::of(
        "the first lines name the limit and who grew, and what to look at next",
        text.lines().take(FIRST_LINES).any(|line| {
            line.contains("was killed because") && line.contains(&name) && line.contains(&who)
        }) && text
            .lines()
            .take(FIRST_LINES)
            .any(|line| line.trim_start().starts_with("memtrace report ")),
        || text.clone(),
    ));
    Ok(scores)
}

/// The recording, and what the workload knew.
fn run(recorded: Recorded) -> Result<(Recorded, Value)> {
    let lines = workload::parse(&recorded.output)?;
    let truth = lines.into_iter().next();
    let truth = truth.context("the workload said nothing")?;
    Ok((recorded, truth))
}

/// The file that filled the group, and who wrote it.
fn wrote(found: &Value, truth: &Value, file: &Path) -> Score {
    let object = &found["grown_object"];
    let bytes = object["bytes"].as_i64().unwrap_or(0);
    let is_reported = found["grown_kind"]["kind"] == "shared"
        && object["name"].as_str().map(Path::new) == Some(file)
        && object["held_by"][0]["pid"] == truth["writer"]
        && (LIMIT_BYTES / 4..LIMIT_BYTES).contains(&bytes);
    Score::of(
        "the file that filled the group is named, and who wrote it",
        is_reported,
        || format!("{truth}: {found}"),
    )
}

/// The children that grew by copies, and by no more than there was room for.
fn copied(found: &Value) -> Score {
    let first = &found["growers"][0];
    let last = |name: &str| {
        let amounts = first[name].as_array().and_then(|all| all.last());
        amounts.and_then(Value::as_i64).unwrap_or(0)
    };
    // What the others and the parent hold leaves 136 MiB, less what the kernel takes for itself.
    let room = LIMIT_BYTES / 4..LIMIT_BYTES * 5 / 8;
    let is_reported = first["process_count"] == 5
        && room.contains(&last("grown_bytes"))
        && last("copied_bytes") * 2 > last("grown_bytes");
    Score::of(
        "the copies that children made are reported once",
        is_reported,
        || found.to_string(),
    )
}

/// Who holds most under the limit.
fn largest(found: &Value, truth: &Value) -> Score {
    let first = &found["holders"][0];
    let is_reported = match truth.get("largest") {
        Some(largest) => &first["pid"] == largest,
        None => first["process_count"] == truth["copiers"] || first["pid"] == truth["parent"],
    };
    Score::of("who held most is reported", is_reported, || {
        format!("{truth}: {found}")
    })
}

/// Together they hold no more than the limit.
fn sum(found: &Value) -> Score {
    let holders = found["holders"].as_array().into_iter().flatten();
    let sum: i64 = holders.filter_map(|one| one["bytes"].as_i64()).sum();
    Score::of(
        "all together hold no more than the limit",
        (LIMIT_BYTES / 4..=LIMIT_BYTES).contains(&sum),
        || format!("{sum}: {found}"),
    )
}
