//! Recordings are carried into directories and into a small S3 that misbehaves.

mod directory;
