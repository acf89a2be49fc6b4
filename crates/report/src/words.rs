//! Figures, times and states in words.

use jiff::tz::TimeZone;
use memtrace_model::{Bytes, DurationNs, Instant, Order, Target, WallNs};

/// What stands where nothing is known.
pub const UNKNOWN: &str = "?";

/// `14.2 GiB`: powers of 1024, one decimal below 100.
pub fn bytes(amount: Bytes) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = amount.0 as f64;
    let mut unit = 0;
    // 1023.95 would be rounded to 1024.0.
    while value.abs() >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 1 && value.abs() < 99.95);
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// An amount, or that it is unknown.
pub fn bytes_or_unknown(amount: Option<Bytes>) -> String {
    amount.map_or_else(|| UNKNOWN.to_owned(), bytes)
}

/// An amount that is more by what is not known: `≥ 1.2 GiB`, and nothing if all is unknown.
pub fn bytes_at_least(amount: Option<Bytes>) -> String {
    match amount {
        None | Some(Bytes(0)) => UNKNOWN.to_owned(),
        Some(amount) => format!("≥ {}", bytes(amount)),
    }
}

/// `+1.2 GiB`, `-64.0 MiB`: a change, with a dash where there is none.
pub fn change(amount: Option<Bytes>) -> String {
    match amount {
        Some(Bytes(0)) => "-".to_owned(),
        Some(amount) if amount.0 > 0 => format!("+{}", bytes(amount)),
        amount => bytes_or_unknown(amount),
    }
}

/// A slope in words: `+312 MiB/h`.
pub fn slope(bytes_per_hour: f64) -> String {
    let sign = if bytes_per_hour < 0.0 { "-" } else { "+" };
    format!("{sign}{}/h", bytes(Bytes(bytes_per_hour.abs() as i64)))
}

/// Half of an interval, which has no bound where too few points tell.
pub fn margin(amount: f64) -> String {
    match amount.is_finite() {
        true => bytes(Bytes(amount.round() as i64)),
        false => UNKNOWN.to_owned(),
    }
}

/// `+17%`, `-3%`: a change as a part of what was.
pub fn percent(ratio: Option<f64>) -> String {
    let Some(ratio) = ratio else {
        return UNKNOWN.to_owned();
    };
    let percent = ratio * 100.0;
    let decimals = usize::from(percent.abs() < 9.95);
    let rounded = format!("{percent:+.decimals$}");
    format!("{}%", rounded.strip_suffix(".0").unwrap_or(&rounded))
}

/// `36%` of a whole; `>999%` where it is none.
pub fn share(part: Option<Bytes>, whole: Option<Bytes>) -> String {
    let (Some(part), Some(whole)) = (part, whole) else {
        return UNKNOWN.to_owned();
    };
    if whole.0 <= 0 {
        return "-".to_owned();
    }
    let percent = part.0 as f64 * 100.0 / whole.0 as f64;
    match percent.round() {
        0.0 if percent != 0.0 => "<1%".to_owned(),
        1_000.0.. => ">999%".to_owned(),
        ..=-1_000.0 => "<-999%".to_owned(),
        whole => format!("{whole:.0}%"),
    }
}

/// `83.2s`, `14m23s`, `3h05m12s`, `2d03h05m`: what `--at` takes after a plus.
pub fn duration(length: DurationNs) -> String {
    let seconds = length.as_secs_f64().abs();
    let sign = if length.0 < 0 { "-" } else { "" };
    let whole = seconds.round() as i64;
    let (days, hours, minutes) = (whole / 86_400, whole / 3_600 % 24, whole / 60 % 60);
    let text = match seconds {
        0.0 => "0s".to_owned(),
        s if s < 0.9995 => format!("{s:.3}s"),
        s if s < 99.95 => format!("{s:.1}s"),
        s if s < 3_599.5 => format!("{minutes}m{:02}s", whole % 60),
        s if s < 86_399.5 => format!("{hours}h{minutes:02}m{:02}s", whole % 60),
        _ => format!("{days}d{hours:02}h{minutes:02}m"),
    };
    format!("{sign}{text}")
}

/// `1d16h`, `3h05m`, `14m23s`: a length of time that is estimated.
pub fn about(length: DurationNs) -> String {
    const HOUR_S: f64 = 3_600.0;
    let seconds = length.as_secs_f64();
    match (seconds / HOUR_S).round() as i64 {
        hours @ 24.. => format!("{}d{:02}h", hours / 24, hours % 24),
        _ if seconds >= HOUR_S => {
            let minutes = (seconds / 60.0).round() as i64;
            format!("{}h{:02}m", minutes / 60, minutes % 60)
        }
        _ => duration(length),
    }
}

/// `1s`, `100ms`: a length of time that someone chose.
pub fn interval(length: DurationNs) -> String {
    let millis = length.0 / 1_000_000;
    match millis {
        millis if millis % 1_000 == 0 => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

/// `+83.2s`: so long after the start of the recording.
pub fn after(offset: DurationNs) -> String {
    let text = duration(offset);
    match text.strip_prefix('-') {
        // A command is forked just before its recording begins.
        Some("0.000s") => "+0s".to_owned(),
        Some(_) => text,
        None => format!("+{text}"),
    }
}

/// `12:03:07 UTC (+83.2s)`, in a time zone `13:03:07 +01:00 (+83.2s)`; with the date in a recording
/// of that length that is longer than a day.
pub fn when(at: Instant, recorded: DurationNs, zone: Option<&TimeZone>) -> String {
    let offset = after(at.offset_ns);
    let is_long = recorded.as_secs_f64() >= 86_400.0;
    let pattern = if is_long { "%F %T" } else { "%T" };
    match at.wall_ns.and_then(|wall| wall_time(wall, pattern, zone)) {
        Some(time) => format!("{time} ({offset})"),
        None => offset,
    }
}

/// `12:03:07 UTC`; with the date in what is longer than a day.
pub fn wall(wall: WallNs, length: DurationNs) -> Option<String> {
    let is_long = length.as_secs_f64() >= 86_400.0;
    wall_time(wall, if is_long { "%F %T" } else { "%T" }, None)
}

/// `2026-03-01 12:01:44 UTC`, in a time zone `2026-03-01 13:01:44 +01:00`.
pub fn date_and_time(wall: WallNs, zone: Option<&TimeZone>) -> Option<String> {
    wall_time(wall, "%F %T", zone)
}

fn wall_time(wall: WallNs, pattern: &str, zone: Option<&TimeZone>) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(wall.0)).ok()?;
    Some(match zone {
        Some(zone) => {
            let time = time.to_zoned(zone.clone());
            format!("{} {}", time.strftime(pattern), time.strftime("%:z"))
        }
        None => format!("{} UTC", time.strftime(pattern)),
    })
}

/// The kinds of an amount, largest first: `anon 9.1 GiB, shmem 1.0 GiB`.
pub fn kinds(anon: Option<Bytes>, file: Option<Bytes>, shmem: Option<Bytes>) -> String {
    let mut kinds = [("anon", anon), ("file", file), ("shmem", shmem)];
    kinds.order_by_key(|&(_, amount)| std::cmp::Reverse(amount));
    let reported: Vec<String> = kinds
        .iter()
        .filter(|(_, amount)| *amount != Some(Bytes(0)))
        .map(|(kind, amount)| format!("{kind} {}", bytes_or_unknown(*amount)))
        .collect();
    reported.join(", ")
}

/// A number with its thousands set apart: `1,204`.
pub fn count(number: impl TryInto<i64>) -> String {
    let number = number.try_into().unwrap_or(i64::MAX);
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if number < 0 {
        grouped.insert(0, '-');
    }
    grouped
}

/// What is recorded.
pub fn target(target: &Target) -> String {
    match target {
        Target::Command { argv } => argv.join(" "),
        Target::Pids { tgids } => {
            let tgids: Vec<String> = tgids.iter().map(ToString::to_string).collect();
            format!("pid {} and descendants", tgids.join(", "))
        }
        Target::Match { regex } => format!("processes that match {regex}, and descendants"),
        Target::Cgroup { path } => format!("cgroup {path}"),
        Target::Framework { framework, session } => {
            let session = session.as_ref().map(|session| format!(" of {session}"));
            let session = session.unwrap_or_default();
            format!("{} processes{session}, and descendants", framework.as_str())
        }
        Target::All => "every process of the machine".to_owned(),
    }
}

/// One column of a curve in characters; a blank is for what is unknown.
pub fn height(amount: Bytes, highest: Bytes) -> char {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = (amount.0 as f64 / highest.0 as f64 * 8.0).ceil() as usize;
    LEVELS[level.clamp(1, 8) - 1]
}

/// How many times: `12 ×`.
pub fn times(number: usize) -> String {
    format!("{} ×", count(number))
}

/// `1 process`, `12 processes`.
pub fn processes(number: usize) -> String {
    counted(number, "process", "processes")
}

/// `1 object`, `12 objects`.
pub fn objects(number: usize) -> String {
    counted(number, "object", "objects")
}

/// `1 more role`, `12 more roles`.
pub fn more_roles(number: usize) -> String {
    counted(number, "more role", "more roles")
}

/// `1 mapping`, `16 mappings`.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_three_figures_at_most_and_a_binary_unit() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (4_096, "4 KiB"),
            (1_023 * 1024, "1.0 MiB"),
            (5 << 20, "5.0 MiB"),
            (512 << 20, "512 MiB"),
            (14 * (1 << 30) + (1 << 28), "14.2 GiB"),
            (-3 * (1 << 30), "-3.0 GiB"),
            (3 << 40, "3.0 TiB"),
        ];
        for (amount, text) in cases {
            assert_eq!(bytes(Bytes(amount)), text);
        }
    }

    #[test]
    fn lengths_of_time_are_as_short_as_they_can_be() {
        let cases = [
            (0.0, "0s"),
            (0.012, "0.012s"),
            (83.24, "83.2s"),
            (99.96, "1m40s"),
            (863.0, "14m23s"),
            (3_599.7, "1h00m00s"),
            (11_112.0, "3h05m12s"),
            (183_900.0, "2d03h05m"),
            (-600.0, "-10m00s"),
        ];
        for (seconds, text) in cases {
            assert_eq!(duration(DurationNs((seconds * 1e9) as i64)), text);
        }
        for (seconds, text) in [
            (863.0, "14m23s"),
            (11_112.0, "3h05m"),
            (86_000.0, "1d00h"),
            (142_500.0, "1d16h"),
        ] {
            assert_eq!(about(DurationNs((seconds * 1e9) as i64)), text);
        }
    }

    #[test]
    fn shares_and_counts_read_well() {
        assert_eq!(share(Some(Bytes(1)), Some(Bytes(1_000))), "<1%");
        assert_eq!(share(Some(Bytes(-1)), Some(Bytes(1_000))), "<1%");
        assert_eq!(share(Some(Bytes(1)), Some(Bytes(3))), "33%");
        assert_eq!(share(Some(Bytes(999)), Some(Bytes(100))), "999%");
        assert_eq!(share(Some(Bytes(5_976)), Some(Bytes(1))), ">999%");
        assert_eq!(share(Some(Bytes(-5_976)), Some(Bytes(1))), "<-999%");
        assert_eq!(share(None, Some(Bytes(3))), "?");
        assert_eq!(share(Some(Bytes(0)), Some(Bytes(0))), "-");
        assert_eq!(count(1_204_567), "1,204,567");
        assert_eq!(count(-12), "-12");
        assert_eq!(processes(1), "1 process");
    }
}
