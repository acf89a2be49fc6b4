//! HTTP as everything here needs it: a connection of its own for each request, so
//! that no server can have closed it unseen, and every way in which it fails distinguished.

mod answer;
mod client;
mod events;
mod exchange;
mod failure;
mod gathered;
mod message;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, Ask, ask};
pub(crate) use client::{Client, connector, in_words};
pub(crate) use failure::Failure;
pub(crate) use target::{Target, parse_url};
