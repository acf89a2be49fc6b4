//! The grid of a plan: every combination of what is varied, the same to the byte for one seed.

use super::condition::{Condition, VERSION};
use crate::load::prompt::Random;

/// What is varied.
#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// Tokens of the prompts.
    pub(crate) input_tokens: Vec<usize>,
    /// Tokens of the outputs.
    pub(crate) output_tokens: Vec<usize>,
    /// Requests under way at a time.
    pub(crate) concurrencies: Vec<usize>,
    /// Shares of the prompts that are one prefix.
    pub(crate) prefix_reuse: Vec<f64>,
    /// Requests of a condition; `None`: as many as are under way at a time.
    pub(crate) requests_per_condition: Option<usize>,
    /// What prompts are made from.
    pub(crate) seed: u32,
}

impl Grid {
    /// Each condition: what is varied last changes fastest.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let mut random = Random::new(&[self.seed.into()]);
        let mut conditions = Vec::new();
        for &input_tokens in &self.input_tokens {
            for &output_tokens in &self.output_tokens {
                for &prefix_reuse in &self.prefix_reuse {
                    for &concurrency in &self.concurrencies {
                        conditions.push(Condition {
                            v: VERSION,
                            condition: conditions.len(),
                            name: Condition::name_of(
                                input_tokens,
                                output_tokens,
                                concurrency,
                                prefix_reuse,
                            ),
                            input_tokens,
                            output_tokens,
                            concurrency,
                            prefix_reuse,
                            requests: self.requests_per_condition.unwrap_or(concurrency),
                            seed: (random.next() >> 32) as u32,
                        });
                    }
                }
            }
        }
        conditions
    }
}

/// Conditions as the lines of a plan.
pub(crate) fn lines(conditions: &[Condition]) -> serde_json::Result<String> {
    let mut text = String::new();
    for condition in conditions {
        text.push_str(&serde_json::to_string(condition)?);
        text.push('\n');
    }
    Ok(text)
}

#[cfg(test)]
impl Default for Grid {
    fn default() -> Self {
        Self {
            input_tokens: vec![8_192, 16_384, 32_768],
            output_tokens: vec![64, 128],
            concurrencies: vec![8, 16, 32, 64],
            prefix_reuse: vec![0.0, 0.8],
            requests_per_condition: None,
            seed: 0,
        }
    }
}

#[cfg(test)]
impl Grid {
    pub(crate) fn lines(&self) -> String {
        lines(&self.conditions()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_grid_has_every_combination_once_and_is_the_same_for_one_seed() {
        let conditions = Grid::default().conditions();
        assert_eq!(conditions.len(), 48);
        let names: HashSet<&str> = conditions.iter().map(|one| one.name.as_str()).collect();
        let seeds: HashSet<u32> = conditions.iter().map(|one| one.seed).collect();
        assert_eq!((names.len(), seeds.len()), (48, 48));
        assert!(conditions.iter().all(|one| one.problem().is_none()));
        assert_eq!(Grid::default().lines(), Grid::default().lines());
        let other = Grid {
            seed: 1,
            ..Grid::default()
        };
        assert_ne!(Grid::default().lines(), other.lines());
    }

    #[test]
    fn the_bytes_of_a_plan_do_not_change_between_versions() {
        let lines = Grid::default().lines();
        let first = lines.lines().next().unwrap();
        assert_eq!(
            first,
            r#"{"v":1,"condition":0,"name":"in8192-out64-prefix0-c8","input_tokens":8192,"output_tokens":64,"concurrency":8,"prefix_reuse":0.0,"requests":8,"seed":2802244911}"#
        );
        let last = lines.lines().last().unwrap();
        assert!(
            last.contains(r#""name":"in32768-out128-prefix80-c64""#),
            "{last}"
        );
    }

    #[test]
    fn a_condition_has_as_many_requests_as_are_asked_for_else_as_are_under_way() {
        let counts = |requests_per_condition| {
            let grid = Grid {
                requests_per_condition,
                ..Grid::default()
            };
            let all = grid.conditions().into_iter();
            all.map(|one| one.requests).collect::<Vec<_>>()
        };
        assert_eq!(counts(None)[..4], [8, 16, 32, 64]);
        assert_eq!(counts(None).iter().sum::<usize>(), 1_440);
        assert_eq!(counts(Some(1)), [1; 48]);
        assert_eq!(counts(Some(20)), [20; 48]);
    }
}
