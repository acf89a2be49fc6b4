//! Tokens in flight: those that an engine holds of the requests under way, the whole prompt from the
//! begin on, and of the output as much as has come, which grows evenly from the first token to the
//! end.

use super::figures::Sending;
use super::requests::Request;
use memtrace_model::{BootNs, Order};

/// A change of what is in flight: `base + slope · t` afterwards.
#[derive(Clone, Copy, Debug)]
struct Change {
    at: BootNs,
    base: f64,
    slope: f64,
}

/// The most that were in flight, and when.
pub(super) fn peak<'a>(requests: impl Iterator<Item = &'a Request>) -> Option<(i64, BootNs)> {
    let mut begins = Vec::new();
    let mut ends = Vec::new();
    for request in requests {
        let line = Line::of(request);
        begins.push(Change {
            at: request.sending.start,
            base: line.prompt,
            slope: 0.0,
        });
        begins.push(Change {
            at: line.first,
            base: -line.slope * seconds(line.first),
            slope: line.slope,
        });
        ends.push(Change {
            at: request.sending.end,
            base: line.slope.mul_add(seconds(line.first), -line.prompt),
            slope: -line.slope,
        });
    }
    begins.order_by_key(|change| change.at);
    ends.order_by_key(|change| change.at);
    let (mut base, mut slope) = (0.0, 0.0);
    let mut highest: Option<(f64, BootNs)> = None;
    let mut begins = begins.into_iter().peekable();
    // It only falls where a request ends: right before that it is highest.
    for end in ends {
        while let Some(begin) = begins.next_if(|begin| begin.at <= end.at) {
            base += begin.base;
            slope += begin.slope;
        }
        let now = base + slope * seconds(end.at);
        if highest.is_none_or(|(most, _)| now > most) {
            highest = Some((now, end.at));
        }
        base += end.base;
        slope += end.slope;
    }
    highest.map(|(most, at)| (most.round() as i64, at))
}

/// How many were in flight at an instant.
pub(super) fn at<'a>(requests: impl Iterator<Item = &'a Request>, instant: BootNs) -> i64 {
    let under_way =
        requests.filter(|one| one.sending.start <= instant && instant <= one.sending.end);
    let tokens = under_way.map(|request| {
        let line = Line::of(request);
        let since = (seconds(instant) - seconds(line.first)).max(0.0);
        line.slope.mul_add(since, line.prompt)
    });
    tokens.sum::<f64>().round() as i64
}

/// What one request holds over its time.
struct Line {
    prompt: f64,
    first: BootNs,
    /// Tokens a second from the first on.
    slope: f64,
}

impl Line {
    fn of(request: &Request) -> Self {
        let Sending { first, end, .. } = request.sending;
        let first = first.unwrap_or(end);
        let length = seconds(end) - seconds(first);
        let output_tokens = request.sending.output_tokens.unwrap_or(0);
        Self {
            prompt: request.prompt_tokens as f64,
            first,
            slope: match length > 0.0 {
                true => output_tokens as f64 / length,
                false => 0.0,
            },
        }
    }
}

fn seconds(at: BootNs) -> f64 {
    at.0 as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of start, first token and end; tokens of prompt and output.
    fn request([start, first, end]: [i64; 3], [prompt, output]: [i64; 2]) -> Request {
        let boot = |seconds| BootNs(seconds * 1_000_000_000);
        Request {
            condition: 0,
            attempt: 0,
            sending: Sending {
                request: 0,
                start: boot(start),
                first: Some(boot(first)),
                end: boot(end),
                prompt_tokens: Some(prompt),
                output_tokens: Some(output),
                outcome: None,
            },
            prompt_tokens: prompt,
            error: None,
        }
    }

    #[test]
    fn prompts_count_from_the_begin_and_outputs_as_they_come() {
        let requests = [
            request([0, 10, 20], [1_000, 100]),
            request([0, 10, 30], [1_000, 200]),
            request([20, 25, 40], [10, 15]),
        ];
        let at = |second: i64| at(requests.iter(), BootNs(second * 1_000_000_000));
        assert_eq!([at(5), at(15), at(25)], [2_000, 2_100, 1_160]);
        let (most, when) = peak(requests.iter()).unwrap();
        // Two end with 1,100 each, and the third has begun.
        assert_eq!((most, when.0), (2_210, 20_000_000_000));
    }

    #[test]
    fn a_request_that_fails_at_once_holds_its_prompt_for_no_time() {
        let mut failed = request([5, 5, 5], [7, 0]);
        failed.sending.first = None;
        assert_eq!(peak([failed].iter()), Some((7, BootNs(5_000_000_000))));
        assert_eq!(peak([].iter()), None);
    }
}
