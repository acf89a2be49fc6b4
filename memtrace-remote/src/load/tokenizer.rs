//! How many tokens a prompt has: what the server's `/tokenize` says, where it answers, else one for
//! each word.

use super::prompt::Prompts;
use crate::http::{Client, Failure};
use crate::limits::{COUNT_TIME, COUNTED_BYTES};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

/// The path that vLLM and SGLang have it at.
const PATH: &str = "/tokenize";

/// Lengths that are tried for one prompt.
const TRIES: usize = 6;

/// Tokens that a word can have on average: of a vocabulary of bytes it has some six.
const PER_WORD: std::ops::Range<f64> = 0.5..20.0;

/// What prompts are measured with.
#[derive(Clone, Debug)]
pub(crate) struct Tokenizer {
    model: String,
    is_chat: bool,
    /// Whether the server counts.
    is_exact: bool,
    learned: Line,
}

/// Tokens of a prompt by its words: so many for each, and some that come with every prompt, as those of
/// a chat's template do.
#[derive(Clone, Copy, Debug)]
struct Line {
    per_word: f64,
    constant: f64,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            per_word: 1.0,
            constant: 0.0,
        }
    }
}

impl Line {
    /// A prompt has a word at least.
    fn words_for(&self, target: usize) -> usize {
        let words = (target as f64 - self.constant) / self.per_word;
        words.round().max(1.0) as usize
    }

    /// Takes in that a prompt of so many words has so many tokens; `before` is what was counted of one
    /// before it.
    fn learn(&mut self, (words, tokens): (usize, usize), before: Option<(usize, usize)>) {
        let (words, tokens) = (words as f64, tokens as f64);
        let slope =
            before.map(|(other, counted)| (tokens - counted as f64) / (words - other as f64));
        match slope {
            // Of neighbours the single words tell more than the line.
            Some(slope) if PER_WORD.contains(&slope) => self.per_word = slope,
            Some(_) => {}
            // Half as many again are no template: the vocabulary has these words in pieces.
            None if tokens > words * 1.5 + self.constant => self.per_word = tokens / words,
            None => {}
        }
        self.constant = tokens - words * self.per_word;
    }
}

/// A prompt, and what is known of its length before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fitted {
    /// Its length in words.
    pub(crate) words: usize,
    /// As the server counts; `None` where it does not.
    pub(crate) tokens: Option<usize>,
}

#[derive(Deserialize)]
struct Counted {
    count: usize,
}

impl Tokenizer {
    /// Asks the server whether it counts tokens.
    pub(crate) async fn find(client: &Client, model: &str, is_chat: bool) -> Self {
        let mut tokenizer = Self::by_words(model, is_chat);
        tokenizer.is_exact = tokenizer.count(client, "time").await.is_ok();
        tokenizer
    }

    /// Without asking anybody.
    pub(crate) fn by_words(model: &str, is_chat: bool) -> Self {
        Self {
            model: model.to_owned(),
            is_chat,
            is_exact: false,
            learned: Line::default(),
        }
    }

    /// How lengths are known, in words.
    pub(crate) fn in_words(&self) -> &'static str {
        match self.is_exact {
            true => "by the server's /tokenize",
            false => {
                "approximate: by words, because the server does not (or not always) answer \
                 /tokenize"
            }
        }
    }

    /// The prompt of a request, of so many tokens.
    pub(crate) async fn fit(
        &mut self,
        client: &Client,
        prompts: Prompts,
        request: usize,
        target: usize,
    ) -> Fitted {
        let mut words = self.learned.words_for(target);
        if !self.is_exact {
            return Fitted {
                words,
                tokens: None,
            };
        }
        let mut best: Option<(usize, Fitted)> = None;
        let mut before = None;
        for _ in 0..TRIES {
            let text = prompts.text(request, words);
            let Ok(tokens) = self.count(client, &text).await else {
                // Not asked again: one that hangs would keep every prompt waiting.
                self.is_exact = false;
                return Fitted {
                    words,
                    tokens: None,
                };
            };
            self.learned
                .learn((words, tokens), before.replace((words, tokens)));
            let off = tokens.abs_diff(target);
            if best.as_ref().is_none_or(|(least, _)| off < *least) {
                let tokens = Some(tokens);
                best = Some((off, Fitted { words, tokens }));
            }
            let next = self.learned.words_for(target);
            if off == 0 || next == words {
                break;
            }
            words = next;
        }
        best.map_or_else(
            || Fitted {
                words,
                tokens: None,
            },
            |(_, fitted)| fitted,
        )
    }

    async fn count(&self, client: &Client, text: &str) -> Result<usize, Failure> {
        let body = match self.is_chat {
            true => json!({"model": self.model, "messages": messages(text)}),
            false => json!({"model": self.model, "prompt": text}),
        };
        let body = Bytes::from(body.to_string());
        let counted = client.json_to(PATH, body, (COUNT_TIME, COUNTED_BYTES));
        let Counted { count } = counted.await?;
        Ok(count)
    }
}

/// A prompt as a chat.
pub(crate) fn messages(text: &str) -> Value {
    json!([{"role": "user", "content": text}])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How far from the target a prompt is, of what each try gave the one that came nearest.
    fn off(line: &mut Line, target: usize, tokens_of: impl Fn(usize) -> usize) -> usize {
        let mut before = None;
        let mut words = line.words_for(target);
        let mut least = usize::MAX;
        for _ in 0..TRIES {
            let tokens = tokens_of(words);
            least = least.min(tokens.abs_diff(target));
            line.learn((words, tokens), before.replace((words, tokens)));
            let next = line.words_for(target);
            if least == 0 || next == words {
                break;
            }
            words = next;
        }
        least
    }

    #[test]
    fn prompts_come_near_their_length_whatever_a_word_is_in_tokens() {
        let plain = |words: usize| words;
        let chat = |words: usize| words + 17;
        let pieces = |words: usize| words + words / 3 + words % 2 + 1;
        let bytes = |words: usize| words * 31 / 5 + words % 3;
        let bytes_of_chat = |words: usize| words * 6 + 40;
        for target in [64, 128, 8192] {
            assert_eq!(off(&mut Line::default(), target, plain), 0);
            assert_eq!(off(&mut Line::default(), target, chat), 0);
            assert!(off(&mut Line::default(), target, pieces) <= 1, "{target}");
            assert!(off(&mut Line::default(), target, bytes) <= 4, "{target}");
            assert!(off(&mut Line::default(), target, bytes_of_chat) <= 3);
        }
    }

    #[test]
    fn what_was_learned_of_one_prompt_serves_the_next() {
        let mut line = Line::default();
        let bytes = |words: usize| words * 6 + 5;
        off(&mut line, 1_000, bytes);
        assert!(bytes(line.words_for(4_000)).abs_diff(4_000) <= 3);
    }
}
