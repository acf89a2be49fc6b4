//! Names that differ by a number are one stage at several steps.

/// What stands for the number in the name of a stage.
const NUMBER: &str = "<N>";

use std::borrow::Cow;

/// Words that a step's own number follows; before it others can stand, as in `epoch_1_step_7`.
const WORDS: [&str; 4] = ["step", "iter", "iteration", "batch"];

/// The name with its number left out, where it has one.
pub(crate) fn stage(name: &str) -> Cow<'_, str> {
    numbered(name).map_or(Cow::Borrowed(name), |(stage, _)| Cow::Owned(stage))
}

/// The name with its number left out, and the number. Of several the one after "step" or a word
/// like it counts, else the first.
pub(crate) fn numbered(name: &str) -> Option<(String, i64)> {
    let runs = || digit_runs(name);
    let follows_a_word = |start: usize| {
        let before = name[..start].trim_end_matches(|c: char| !c.is_alphanumeric());
        let word_start = before.rfind(|c: char| !c.is_alphabetic());
        let word = &before[word_start.map_or(0, |at| {
            at + before[at..].chars().next().map_or(1, char::len_utf8)
        })..];
        WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
    };
    let (start, end) = runs()
        .find(|&(start, _)| follows_a_word(start))
        .or_else(|| runs().next())?;
    let number = name[start..end].parse().ok()?;
    Some((
        format!("{}{NUMBER}{}", &name[..start], &name[end..]),
        number,
    ))
}

/// Where the numbers of a name start and end. A digit that a letter follows (`4bit`, a
/// hash) is part of a word.
fn digit_runs(name: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut from = 0;
    let runs = std::iter::from_fn(move || {
        let start = from + name[from..].find(|c: char| c.is_ascii_digit())?;
        let length = name[start..].find(|c: char| !c.is_ascii_digit());
        from = length.map_or(name.len(), |length| start + length);
        Some((start, from))
    });
    runs.filter(|&(_, end)| !name[end..].starts_with(char::is_alphabetic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_number_after_step_counts_else_the_first() {
        let cases = [
            ("step_3_after_rollout", "step_<N>_after_rollout", 3),
            ("epoch_1_step_500", "epoch_1_step_<N>", 500),
            ("Step 12", "Step <N>", 12),
            ("训练1_iter=7", "训练1_iter=<N>", 7),
            ("rollout-0041.b2", "rollout-<N>.b2", 41),
        ];
        for (name, stage, number) in cases {
            assert_eq!(numbered(name), Some((stage.to_owned(), number)));
        }
        assert_eq!(numbered("load_model"), None);
        assert_eq!(numbered("quantize_fp8e"), None);
        assert_eq!(numbered("99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn any_name_can_be_asked(name in "\\PC*[0-9]{0,3}\\PC*") {
            if let Some((stage, _)) = numbered(&name) {
                prop_assert!(stage.contains(NUMBER));
            }
        }
    }
}
