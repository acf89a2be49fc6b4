//! Processes as the platform lists them: the backend for everything that is not Linux.
//! It runs on Linux too, when it is asked for by name.

mod backend;
mod footprint;
mod listed;
mod member;
#[cfg(test)]
mod tests;

pub use backend::SysinfoBackend;
