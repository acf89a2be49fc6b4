//! What is held over time as it crosses hosts: integers, of which most are small, so that an hour
//! of a host is some tens of KiB in memory and in JSON.

use crate::bins::{Bin, Binned};
use memtrace_model::Order;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Integers, kept in as few bytes as each takes (zigzag, seven bits a byte).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Coded(Vec<u8>);

impl Coded {
    pub(super) fn push(&mut self, number: i64) {
        let mut rest = (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned();
        while rest >= 0x80 {
            self.0.push(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.0.push(rest.to_le_bytes()[0]);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = i64> {
        let mut bytes = self.0.iter();
        std::iter::from_fn(move || {
            let (mut number, mut shift) = (0_u64, 0);
            loop {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte < 0x80 {
                    break;
                }
            }
            Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
        })
    }
}

impl Serialize for Coded {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Coded {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Integers;
        impl<'de> Visitor<'de> for Integers {
            type Value = Coded;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of integers")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Coded, A::Error> {
                let mut coded = Coded::default();
                while let Some(number) = list.next_element()? {
                    coded.push(number);
                }
                Ok(coded)
            }
        }
        from.deserialize_seq(Integers)
    }
}

impl JsonSchema for Coded {
    fn schema_name() -> Cow<'static, str> {
        "Integers".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "array", "items": {"type": "integer"}})
    }
}

/// What a host holds in each bin of its wall clock, every page once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct HeldCurve {
    /// The length of a bin in seconds: 1, and longer in a recording of more than a day.
    pub(super) bin_s: i64,
    /// The number of the first bin since the Unix epoch.
    pub(super) first_bin: i64,
    /// Runs of bins in which the same is held, six integers each: how many bins; by how many bytes
    /// the least in them is more than in the run before; by how much the mean is more than that least;
    /// by how much the most is; by how much the least can have been less; by how much the most can
    /// have been more.
    runs: Coded,
    /// What roles held in them, and what was shared: those that held most.
    pub(super) parts: Vec<PartCurve>,
}

/// What a part of what a host holds was in each bin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(super) struct PartCurve {
    /// The name of the role; null for what is shared, which counts once a host.
    pub(super) role: Option<String>,
    /// Runs of bins of about the same: how many bins, and by how many KiB the most in them is more
    /// than in the run before. What lies within a sixty-fourth of the highest is about the same.
    runs: Coded,
}

/// So many roles of a host have a curve.
const ROLES_MAX: usize = 6;
/// Within such a part of the highest, amounts are about the same.
const ALIKE_PART: i64 = 64;
const KIB: i64 = 1 << 10;

impl HeldCurve {
    pub(super) fn of(binned: &Binned, role_names: impl Iterator<Item = String>) -> Self {
        let mut runs = Coded::default();
        let mut before = 0;
        for run in binned.held.chunk_by(|a, b| a == b) {
            let bin = run.first().copied().unwrap_or(Bin::NOTHING);
            let count = i64::try_from(run.len()).unwrap_or(i64::MAX);
            let numbers = [
                count,
                bin.least - before,
                bin.mean - bin.least,
                bin.most - bin.least,
                bin.least - bin.at_least,
                bin.at_most - bin.most,
            ];
            numbers.into_iter().for_each(|number| runs.push(number));
            before = bin.least;
        }
        let roles = binned.roles.iter().zip(role_names);
        let roles = roles.map(|(amounts, name)| (amounts, Some(name)));
        let mut parts: Vec<(&Vec<i64>, Option<String>)> = roles.collect();
        let highest = |amounts: &[i64]| amounts.iter().copied().max().unwrap_or(0);
        parts.retain(|(amounts, _)| highest(amounts) > 0);
        parts.order_by(|a, b| (highest(b.0), &a.1).cmp(&(highest(a.0), &b.1)));
        parts.truncate(ROLES_MAX);
        if highest(&binned.shared) > 0 {
            parts.push((&binned.shared, None));
        }
        let curve = |(amounts, role): (&Vec<i64>, _)| PartCurve::of(amounts, role);
        Self {
            bin_s: binned.width_s,
            first_bin: binned.first,
            runs,
            parts: parts.into_iter().map(curve).collect(),
        }
    }

    /// Runs of bins: how many, and what is held in each.
    pub(super) fn runs(&self) -> impl Iterator<Item = (i64, Bin)> {
        let mut numbers = self.runs.iter();
        let mut least = 0_i64;
        std::iter::from_fn(move || {
            let [count, more, mean, spread, below, above] = [0; 6].map(|_| numbers.next());
            least = least.saturating_add(more?);
            let (count, mean, spread, below, above) = (count?, mean?, spread?, below?, above?);
            let most = least.saturating_add(spread.max(0));
            let bin = Bin {
                at_least: least.saturating_sub(below.max(0)),
                least,
                mean: least.saturating_add(mean).min(most),
                most,
                at_most: most.saturating_add(above.max(0)),
            };
            Some((count.clamp(0, BINS_OF_RUN_MAX), bin))
        })
    }

    /// How many bins there are.
    pub(super) fn bin_count(&self) -> i64 {
        self.runs().map(|(count, _)| count).sum()
    }
}

/// What a run says of its length is bounded before anything is counted by it.
const BINS_OF_RUN_MAX: i64 = 1 << 20;

impl PartCurve {
    fn of(amounts: &[i64], role: Option<String>) -> Self {
        let highest = amounts.iter().copied().max().unwrap_or(0);
        let alike = highest / ALIKE_PART;
        let mut runs: Vec<(i64, i64, i64)> = Vec::new();
        for &bytes in amounts {
            match runs.last_mut() {
                Some((count, least, most))
                    if bytes.max(*most).saturating_sub(bytes.min(*least)) <= alike =>
                {
                    *count += 1;
                    *least = bytes.min(*least);
                    *most = bytes.max(*most);
                }
                _ => runs.push((1, bytes, bytes)),
            }
        }
        let mut coded = Coded::default();
        let mut before = 0;
        for (count, _, most) in runs {
            let kib = most.max(0) / KIB;
            coded.push(count);
            coded.push(kib - before);
            before = kib;
        }
        Self { role, runs: coded }
    }

    /// The most of it in a bin, counted from the first one.
    pub(super) fn at(&self, place: i64) -> i64 {
        let mut numbers = self.runs.iter();
        let (mut kib, mut passed) = (0_i64, 0_i64);
        while let (Some(count), Some(more)) = (numbers.next(), numbers.next()) {
            kib = kib.saturating_add(more);
            passed = passed.saturating_add(count.max(0));
            if place < passed {
                return kib.saturating_mul(KIB);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_are_read_as_they_were_written(numbers in proptest::collection::vec(any::<i64>(), 0..40)) {
            let mut coded = Coded::default();
            numbers.iter().for_each(|&number| coded.push(number));
            prop_assert_eq!(coded.iter().collect::<Vec<_>>(), numbers.clone());
            let json = serde_json::to_string(&coded).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&numbers).unwrap());
            prop_assert_eq!(serde_json::from_str::<Coded>(&json).unwrap(), coded);
        }

        #[test]
        fn bins_are_read_as_they_were_written_and_roles_within_a_sixty_fourth(
            amounts in proptest::collection::vec((0..1_000_000_i64, 0..9_i64, 0..9_i64, 0..9_i64), 1..40),
        ) {
            let held: Vec<Bin> = amounts.iter().map(|&(least, spread, below, above)| Bin {
                at_least: least - below,
                mean: least + spread - below.min(spread),
                least,
                most: least + spread,
                at_most: least + spread + above,
            }).collect();
            let role: Vec<i64> = held.iter().map(|bin| bin.most * KIB).collect();
            let binned = Binned {
                width_s: 1,
                first: 7,
                held: held.clone(),
                roles: vec![role.clone()],
                shared: vec![0; held.len()],
            };
            let curve = HeldCurve::of(&binned, std::iter::once("worker".to_owned()));
            let read = curve.runs().flat_map(|(count, bin)| (0..count).map(move |_| bin));
            prop_assert_eq!(read.collect::<Vec<_>>(), held);
            let highest = role.iter().max().copied().unwrap_or(0);
            for (place, &bytes) in (0..).zip(&role) {
                let text = curve.parts.first().map_or(0, |part| part.at(place));
                prop_assert!(text >= bytes && text - bytes <= highest / ALIKE_PART);
            }
        }
    }

    #[test]
    fn an_hour_that_changes_each_second_takes_little_room() {
        let held = (0..3_600_i64).map(|second| {
            let least = (64 << 30) + second * 7_919 % 1_000 * 4_096;
            let most = least + 40_960;
            Bin {
                at_least: least,
                least,
                mean: least,
                most,
                at_most: most,
            }
        });
        let held: Vec<Bin> = held.collect();
        let binned = Binned {
            width_s: 1,
            held,
            ..Binned::default()
        };
        let curve = HeldCurve::of(&binned, std::iter::empty());
        assert!(curve.runs.0.len() < 40_000, "{}", curve.runs.0.len());
    }
}
