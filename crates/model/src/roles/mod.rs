//! What processes are to their framework: "vLLM worker TP0", "Ray actor Trainer".
//!
//! The rules are data, `rules.toml` and what a user adds in a file of the same form. [`Rules`]
//! reads them, and answers what the looks of a process say of it; who follows a process through
//! its titles is `collect::Roles`.

mod command;
mod file;
mod rules;

pub use file::RulesError;
pub use rules::{Environments, Found, MAIN, ProcessTraits, Role, Rules, says_little};

#[cfg(test)]
mod tests;
