//! Where recordings of many hosts are kept: a bucket or a directory, named by an address.
//!
//! `object_store` knows the protocols. Its requests go over the connections of this program, so
//! that there is one TLS in it.

mod access_error;
mod address;
mod connector;
mod contact;
mod failure;
mod listing;
mod pool;
mod way_there;

pub(crate) use access_error::{AccessError, Way};
pub(crate) use address::{Objects, is_address};
pub(crate) use listing::Listing;
