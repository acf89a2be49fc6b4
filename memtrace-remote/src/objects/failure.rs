//! Errors of requests to a bucket, in words.

use indicatif::BinaryBytes;
use object_store::client::{HttpError, HttpErrorKind};
use std::fmt::Display;

/// An answer that is longer than any can be, or a redirect: to ask again does not help.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unsound(String);

/// The server answers with more than was asked for.
pub(super) fn too_long(server: &impl Display, most: u64) -> HttpError {
    unsound(format!(
        "{server} answers with more than {}, which is too much for this question: it, or \
         something on the way to it, is not the server of a bucket",
        BinaryBytes(most)
    ))
}

/// What a server of a bucket does not say.
pub(super) fn unsound(words: String) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, Unsound(words))
}

/// Of a kind, in words.
pub(super) fn failure(kind: HttpErrorKind, words: &str) -> HttpError {
    HttpError::new(kind, std::io::Error::other(words.to_owned()))
}
