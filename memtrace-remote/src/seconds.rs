//! Times as options have them.

use std::time::Duration;

pub(crate) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = parse_pause(text)?;
    match seconds.is_zero() {
        true => Err("must be longer than zero".to_owned()),
        false => Ok(seconds),
    }
}

pub(crate) fn parse_pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "must be a number of seconds, at most a day".to_owned())
}
