//! What tests of the whole program share.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

pub mod hostile;
pub mod recording;
pub mod s3;
