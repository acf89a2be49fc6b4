//! The border to arrow's and parquet's decoders, where their panics stop.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a decoder on bytes that may be damaged and gives its error, or its panic, as text.
///
/// Both crates check most of what they read, but a flipped bit still reaches a slice
/// index or an `assert!` now and then, and a report on a damaged recording must name the
/// file and go on. The panic's message still goes to the panic hook. What the call had
/// borrowed mutably must not be used again after an error: callers drop the decoder.
pub(super) fn contain<T, E: Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("the decoder panicked: {}", message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let slice: &[u8] = &[];
        let result = contain(|| Ok::<u8, String>(slice[slice.len()]));
        assert!(result.unwrap_err().contains("out of bounds"));
    }

    #[test]
    fn an_error_passes_through_as_text() {
        assert_eq!(contain(|| Err::<(), _>("no")), Err("no".to_owned()));
        assert_eq!(contain(|| Ok::<_, String>(7)), Ok(7));
    }
}
