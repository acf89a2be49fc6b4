//! The one HTTP exchange that everything here needs: a connection of its own for each request, so
//! that no server can have closed it unseen, and every way in which it fails told apart.

mod answer;
mod client;
mod events;
mod failure;
mod target;
#[cfg(test)]
mod tests;

pub(crate) use answer::{Answer, Ask, ask, message_of};
pub(crate) use client::Client;
pub(crate) use failure::Failure;
pub(crate) use target::{Target, parse_url};
