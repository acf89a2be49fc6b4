//! Prompts out of a seed. Words that nearly every vocabulary has as one token each, in an order that
//! no two prompts share beyond their common prefix.

/// Short and frequent words: with the space before it, each is one token of the vocabularies in use.
const WORDS: [&str; 128] = [
    "time",
    "year",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
    "city",
    "community",
    "name",
    "president",
    "team",
    "minute",
    "idea",
    "kid",
    "body",
    "information",
    "back",
    "parent",
    "face",
    "others",
    "level",
    "office",
    "door",
    "health",
    "person",
    "art",
    "war",
    "history",
    "party",
    "result",
    "change",
    "morning",
    "reason",
    "research",
    "girl",
    "guy",
    "moment",
    "air",
    "teacher",
    "force",
    "education",
    "foot",
    "boy",
    "age",
    "policy",
    "music",
    "market",
    "sense",
    "nation",
    "plan",
    "college",
    "interest",
    "death",
    "experience",
    "effect",
    "use",
    "class",
    "control",
    "care",
    "field",
    "development",
    "role",
    "effort",
    "rate",
    "heart",
    "drug",
    "show",
    "leader",
    "light",
];

/// Numbers that are the same on every machine and in every version (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of these numbers.
    pub(crate) fn new(seeds: &[u64]) -> Self {
        let mut random = Self(0);
        for seed in seeds {
            random.0 = random.next() ^ seed;
        }
        random
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The prompts of one condition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompts {
    /// The condition's seed.
    pub(crate) seed: u32,
    /// The share of its words with which each begins as all do.
    pub(crate) prefix_share: f64,
}

impl Prompts {
    /// The prompt of a request, of so many words in all.
    pub(crate) fn text(&self, request: usize, words: usize) -> String {
        let seed = u64::from(self.seed);
        let mut text = String::with_capacity(words * 7);
        let shared = (words as f64 * self.prefix_share).round() as usize;
        push_words(&mut text, Random::new(&[seed]), shared);
        // A request of the same number under another condition is another prompt.
        let own = Random::new(&[seed, 1 + request as u64]);
        push_words(&mut text, own, words - shared);
        text
    }
}

fn push_words(text: &mut String, mut random: Random, count: usize) {
    for _ in 0..count {
        if !text.is_empty() {
            text.push(' ');
        }
        // The high bits are the best mixed.
        let place = (random.next() >> 57) as usize;
        text.push_str(WORDS[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_the_same_each_time_and_shares_exactly_the_prefix() {
        let prompts = Prompts {
            seed: 7,
            prefix_share: 0.8,
        };
        let words = |request| -> Vec<String> {
            let text = prompts.text(request, 100);
            text.split(' ').map(str::to_owned).collect()
        };
        let (first, second) = (words(0), words(1));
        assert_eq!((first.len(), &first), (100, &words(0)));
        assert_eq!(first[..80], second[..80]);
        assert_ne!(first[80..], second[80..]);
        let other = Prompts { seed: 8, ..prompts }.text(0, 100);
        assert_ne!(other.split(' ').next().unwrap(), "");
        assert_ne!(other, prompts.text(0, 100));
    }

    #[test]
    fn without_reuse_prompts_share_nothing_from_the_first_word_on() {
        let prompts = Prompts {
            seed: 7,
            prefix_share: 0.0,
        };
        let starts: std::collections::HashSet<String> =
            (0..64).map(|request| prompts.text(request, 4)).collect();
        assert_eq!(starts.len(), 64);
    }
}
