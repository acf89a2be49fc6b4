//! Reads a plan, and says which line of it is wrong.

use super::condition::Condition;
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Plans are a few hundred lines of some hundred bytes.
const LINE_MAX: u64 = 64 << 10;
const CONDITIONS_MAX: usize = 100_000;

/// A plan that can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    /// The file can't be read.
    #[error("failed to read {}: {source}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A line is no condition.
    #[error("{}, line {line}: {problem}", .path.display())]
    Line {
        path: PathBuf,
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no condition in it.
    #[error("{} has no conditions", .path.display())]
    Empty { path: PathBuf },
}

/// Reads the conditions of a plan, in their order.
///
/// # Errors
/// When the file can't be read, or a line of it is not a condition.
pub(crate) fn read(path: &Path) -> Result<Vec<Condition>, PlanError> {
    let unread = |source| PlanError::Read {
        path: path.to_owned(),
        source,
    };
    let mut file = BufReader::new(std::fs::File::open(path).map_err(unread)?);
    let mut conditions: Vec<Condition> = Vec::new();
    let mut names = HashSet::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = (&mut file).take(LINE_MAX).read_until(b'\n', &mut line);
        if length.map_err(unread)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |problem| PlanError::Line {
            path: path.to_owned(),
            line: number,
            problem,
        };
        if conditions.len() == CONDITIONS_MAX {
            return Err(wrong(format!(
                "there are more than {CONDITIONS_MAX} conditions"
            )));
        }
        let condition: Condition = match serde_json::from_slice(&line) {
            Ok(condition) => condition,
            Err(error) => return Err(wrong(format!("it is not a condition: {error}"))),
        };
        if let Some(problem) = condition.problem() {
            return Err(wrong(problem));
        }
        if !names.insert(condition.name.clone()) {
            return Err(wrong(format!("the name {} is used twice", condition.name)));
        }
        conditions.push(condition);
    }
    match conditions.is_empty() {
        true => Err(PlanError::Empty {
            path: path.to_owned(),
        }),
        false => Ok(conditions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::plan::grid::Grid;

    fn error_of(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plan.jsonl");
        std::fs::write(&path, text).unwrap();
        let error = read(&path).unwrap_err().to_string();
        error.replace(&format!("{}", path.display()), "PLAN")
    }

    #[test]
    fn a_bad_line_is_named_by_its_number() {
        let lines = Grid::default().lines();
        let good: Vec<&str> = lines.lines().take(2).collect();
        let [first, second] = good.as_slice() else {
            panic!("a grid of one condition");
        };
        let with = |third: &str| error_of(&format!("{first}\n\n{second}\n{third}\n"));
        assert!(with("nonsense").starts_with("PLAN, line 4: it is not a condition"));
        assert_eq!(
            with(
                &second
                    .replace("\"concurrency\":16", "\"concurrency\":0")
                    .replace("c16", "c0")
            ),
            "PLAN, line 4: concurrency is 0, not between 1 and 4096"
        );
        assert!(with(first).contains("is used twice"));
        assert!(with(&first.replace("\"v\":1", "\"v\":9")).contains("version 9"));
        assert!(with(&first.replace("\"v\":1", "\"v\":1,\"rate\":3")).contains("rate"));
        assert_eq!(error_of("\n\n"), "PLAN has no conditions");
        assert!(error_of(&"x".repeat(200_000)).starts_with("PLAN, line 1: "));
    }
}
