//! CRC-32 of what is written, so that a flipped bit is noticed where it is read.
//!
//! Each unit that is read alone carries its own: a frame of the spool (see `framing`), a column
//! chunk and the footer of a part, `run.json`, a line of `manifest.jsonl`. The last three hold their
//! checksum within themselves, as eight hexadecimal digits that are taken for zeros when it is worked
//! out.

use std::ops::Range;

/// Comes before the digits in `run.json`. No text in it can contain that: its quotes would be
/// escaped.
const JSON_KEY: &str = "\"checksum\": \"crc32:";
/// The key of a part's footer under which its own checksum stands.
pub(super) const FOOTER_KEY: &str = "memtrace.footer_crc32";
/// The key of a part's footer under which those of its column chunks stand, eight digits each:
/// all of the first row group, then all of the next.
pub(super) const COLUMNS_KEY: &str = "memtrace.column_crc32";
/// Stands for digits that are not known yet.
pub(super) const UNKNOWN: &str = "00000000";

/// Whether something is as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// Its checksum fits.
    Intact,
    /// It has none: memtrace did not write them at first.
    Absent,
    /// Its checksum is another.
    Changed,
}

/// The checksum of bytes.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// A checksum as text.
pub(super) fn digits(crc32: u32) -> String {
    format!("{crc32:08x}")
}

/// Adds its checksum to a JSON object, as the last member.
pub(super) fn seal_json(json: &mut Vec<u8>) {
    let end = json.iter().rposition(|&byte| byte == b'}');
    json.truncate(end.unwrap_or(json.len()).saturating_sub(1));
    json.extend_from_slice(format!(",\n  {JSON_KEY}{UNKNOWN}\"\n}}\n").as_bytes());
    if let Some(place) = place_in_json(json) {
        seal(json, place);
    }
}

/// The same for an object that is a line of its own.
pub(super) fn seal_line(json: &mut Vec<u8>) {
    json.pop();
    json.extend_from_slice(format!(", {JSON_KEY}{UNKNOWN}\"}}\n").as_bytes());
    if let Some(place) = place_in_json(json) {
        seal(json, place);
    }
}

/// Checks a JSON object that [`seal_json`] or [`seal_line`] has made.
pub(super) fn check_json(json: &[u8]) -> Checked {
    place_in_json(json).map_or(Checked::Absent, |place| check(json, place))
}

fn place_in_json(json: &[u8]) -> Option<Range<usize>> {
    let start = memchr::memmem::rfind(json, JSON_KEY.as_bytes())? + JSON_KEY.len();
    Some(start..start + UNKNOWN.len()).filter(|place| place.end <= json.len())
}

/// Where the digits of a footer stand. Its keys and values come after all that has its text
/// from elsewhere, and this one is the last of them.
pub(super) fn place_in_footer(footer: &[u8]) -> Option<Range<usize>> {
    let key = memchr::memmem::rfind(footer, FOOTER_KEY.as_bytes())?;
    // In the Thrift compact protocol a text is the type and number of its field, its length,
    // and its bytes.
    let value = key + FOOTER_KEY.len();
    let is_text = footer.get(value..value + 2)? == [0x18, UNKNOWN.len() as u8];
    let digits = value + 2..value + 2 + UNKNOWN.len();
    (is_text && digits.end <= footer.len()).then_some(digits)
}

/// Writes the digits at their place.
pub(super) fn seal(bytes: &mut [u8], place: Range<usize>) {
    let digits = digits(crc32_around(bytes, &place));
    if let Some(room) = bytes.get_mut(place) {
        room.copy_from_slice(digits.as_bytes());
    }
}

/// Compares the digits at their place.
pub(super) fn check(bytes: &[u8], place: Range<usize>) -> Checked {
    let expected = digits(crc32_around(bytes, &place));
    match bytes.get(place) == Some(expected.as_bytes()) {
        true => Checked::Intact,
        false => Checked::Changed,
    }
}

fn crc32_around(bytes: &[u8], place: &Range<usize>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(bytes.get(..place.start).unwrap_or(bytes));
    hasher.update(UNKNOWN.as_bytes());
    hasher.update(bytes.get(place.end..).unwrap_or(&[]));
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_flipped_bit_of_a_sealed_object_is_noticed() {
        let mut json = serde_json::to_vec_pretty(&serde_json::json!({"a": 1, "b": "}"})).unwrap();
        assert_eq!(check_json(&json), Checked::Absent);
        seal_json(&mut json);
        let read: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(read["b"], "}");
        assert_eq!(check_json(&json), Checked::Intact);
        for bit in 0..json.len() * 8 {
            json[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(check_json(&json), Checked::Intact, "bit {bit}");
            json[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
