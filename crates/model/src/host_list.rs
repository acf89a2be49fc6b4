//! Lists of hosts as people and Slurm write them: `node[01-03,7],gpu2`, `rack[0-1]n[1-4]-ib`.

use super::place::{HOSTS_MAX, PlaceName, PlaceNameError};
use std::collections::HashSet;

/// A text that is no list of hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostListError {
    /// A bracket has no partner, or stands within another.
    #[error("the brackets of {0:?} do not match")]
    Brackets(String),
    /// What stands in brackets is neither a number nor a range.
    #[error("[{0}] is not a range of numbers, like [1-3,7] or [001-128]")]
    Range(String),
    /// It names more hosts than can be.
    #[error("it names more than {HOSTS_MAX} hosts")]
    TooMany,
    /// It names none.
    #[error("it names no host")]
    Empty,
    /// One of its names can't be a host's.
    #[error(transparent)]
    Name(#[from] PlaceNameError),
}

/// The hosts that a list names, in its order and each once.
///
/// # Errors
/// When it is no such list, or too long a one.
pub fn parse_host_list(text: &str) -> Result<Vec<PlaceName>, HostListError> {
    let mut hosts = Vec::new();
    let mut seen = HashSet::new();
    let mut count = 0;
    for item in items(text)? {
        let mut names = vec![String::new()];
        for piece in item {
            let endings = piece.texts()?;
            count_product(count, names.len(), endings.len())?;
            let longer = |name: &String| {
                let name = name.clone();
                let endings = endings.iter();
                endings
                    .map(move |ending| format!("{name}{ending}"))
                    .collect::<Vec<_>>()
            };
            names = names.iter().flat_map(longer).collect();
        }
        count += names.len();
        for name in names {
            let name = PlaceName::try_from(name)?;
            if seen.insert(name.clone()) {
                hosts.push(name);
            }
        }
    }
    match hosts.is_empty() {
        true => Err(HostListError::Empty),
        false => Ok(hosts),
    }
}

/// That so many names before, times so many endings, are no more than can be.
fn count_product(before: usize, names: usize, endings: usize) -> Result<(), HostListError> {
    let product = names.checked_mul(endings);
    let count = product.and_then(|product| product.checked_add(before));
    match count {
        Some(count) if count <= HOSTS_MAX => Ok(()),
        _ => Err(HostListError::TooMany),
    }
}

/// A piece of a name: itself, or what stands in brackets.
#[derive(Debug)]
enum Piece<'a> {
    Literal(&'a str),
    Ranges(&'a str),
}

impl Piece<'_> {
    /// The texts that it stands for.
    fn texts(&self) -> Result<Vec<String>, HostListError> {
        let ranges = match self {
            Self::Literal(text) => return Ok(vec![(*text).to_owned()]),
            Self::Ranges(ranges) => ranges,
        };
        let mut texts = Vec::new();
        for range in ranges.split(',') {
            let bad = || HostListError::Range((*ranges).to_owned());
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| match text.bytes().all(|byte| byte.is_ascii_digit()) {
                true => text.parse::<u64>().map_err(|_| bad()),
                false => Err(bad()),
            };
            let (from, to) = (number(first)?, number(last)?);
            let length = to.checked_sub(from).ok_or_else(bad)?;
            let length = usize::try_from(length).map_err(|_| HostListError::TooMany)?;
            count_product(texts.len(), length, 1)?;
            // As wide as the first number is written: 08 is followed by 09 and 10.
            let width = first.len();
            texts.extend((from..=to).map(|number| format!("{number:0width$}")));
        }
        count_product(0, texts.len(), 1)?;
        Ok(texts)
    }
}

/// The items of a list, each as its pieces. Commas within brackets are the brackets'.
fn items(text: &str) -> Result<Vec<Vec<Piece<'_>>>, HostListError> {
    let unmatched = || HostListError::Brackets(text.chars().take(100).collect());
    let mut items = Vec::new();
    let mut pieces = Vec::new();
    let mut rest = text.trim();
    while let Some(at) = rest.find(['[', ']', ',']) {
        let (literal, marked) = rest.split_at(at);
        if !literal.trim().is_empty() {
            pieces.push(Piece::Literal(literal.trim()));
        }
        rest = &marked[1..];
        match marked.as_bytes().first() {
            Some(b',') => items.push(std::mem::take(&mut pieces)),
            Some(b'[') => {
                let end = rest.find(['[', ']']).ok_or_else(unmatched)?;
                let (ranges, closing) = rest.split_at(end);
                rest = closing.strip_prefix(']').ok_or_else(unmatched)?;
                pieces.push(Piece::Ranges(ranges));
            }
            _ => return Err(unmatched()),
        }
    }
    if !rest.trim().is_empty() {
        pieces.push(Piece::Literal(rest.trim()));
    }
    items.push(pieces);
    items.retain(|pieces| !pieces.is_empty());
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hosts(text: &str) -> Vec<String> {
        let hosts = parse_host_list(text).unwrap();
        hosts.into_iter().map(String::from).collect()
    }

    #[test]
    fn a_list_is_read_as_slurm_writes_it() {
        for (text, expected) in [
            ("node1", &["node1"][..]),
            ("a,b, c", &["a", "b", "c"]),
            (
                "node[1-3,7],gpu2",
                &["node1", "node2", "node3", "node7", "gpu2"],
            ),
            ("n[08-11]", &["n08", "n09", "n10", "n11"]),
            ("n[9-10]-ib", &["n9-ib", "n10-ib"]),
            ("r[0-1]n[01-02]", &["r0n01", "r0n02", "r1n01", "r1n02"]),
            ("a,a,b,a[1,1]", &["a", "b", "a1"]),
            ("a,,b,", &["a", "b"]),
        ] {
            assert_eq!(hosts(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_list_is_refused_by_what_is_wrong() {
        for (text, words) in [
            ("", "names no host"),
            (" , ", "names no host"),
            ("n[1-2", "brackets"),
            ("n1]", "brackets"),
            ("n[[1-2]]", "brackets"),
            ("n[]", "not a range"),
            ("n[a-b]", "not a range"),
            ("n[3-1]", "not a range"),
            ("n[1-]", "not a range"),
            ("n[+1-2]", "not a range"),
            ("n[99999999999999999999999]", "not a range"),
            ("../x", "A-Za-z0-9._-"),
            ("-n[1-2]", "A-Za-z0-9._-"),
        ] {
            let error = parse_host_list(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_list_is_as_long_as_can_be_and_no_longer() {
        assert_eq!(hosts("n[1-20000]").len(), HOSTS_MAX);
        assert_eq!(hosts("r[1-200]n[1-100]").len(), HOSTS_MAX);
        for text in [
            "n[1-20001]",
            "n[1-20000],x",
            "n[0-18446744073709551615]",
            "r[1-200]n[1-101]",
            "r[1-9999][1-9999][1-9999]",
            "n[1-20000,1-20000]",
        ] {
            assert_eq!(parse_host_list(text), Err(HostListError::TooMany), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_answered_within_bounds(text in "[a1,\\[\\]\\- 09]{0,40}") {
            if let Ok(hosts) = parse_host_list(&text) {
                prop_assert!((1..=HOSTS_MAX).contains(&hosts.len()));
            }
        }
    }
}
