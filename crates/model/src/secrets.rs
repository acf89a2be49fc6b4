//! Texts without the keys and tokens in them: command lines, titles and marks, before they are kept
//! or given to others.
//!
//! A secret is known by the name that stands before it (`--api-key X`, `HF_TOKEN=X`,
//! `"password": "X"`, `Authorization: Bearer X`) or by its own shape (`ghp_…`, `AKIA…`,
//! `user:password@host`). Words of a vocabulary are no secrets, whatever they are called:
//! `--max-tokens 128` and `--pad-token <pad>` stay.

use regex::{Captures, Regex, Replacer};
use serde_json::Value;
use std::borrow::Cow;
use std::sync::LazyLock;

/// What stands in place of a secret.
const HIDDEN: &str = "***";

/// Names that say by their last word that a secret follows, and those that do so by their last two.
const LAST_WORDS: &[&str] = &[
    "apikey",
    "auth",
    "authorization",
    "credential",
    "credentials",
    "passphrase",
    "passwd",
    "password",
    "pwd",
    "secret",
    "token",
];
const KINDS_OF_KEY: &[&str] = &[
    "access",
    "account",
    "api",
    "auth",
    "encryption",
    "master",
    "private",
    "secret",
    "service",
    "signing",
    "storage",
    "subscription",
];
/// What stands before `token` where that is one of a vocabulary, or of a text.
const OF_VOCABULARY: &[&str] = &[
    "any",
    "audio",
    "begin",
    "bos",
    "by",
    "cls",
    "delimiter",
    "draft",
    "each",
    "end",
    "eom",
    "eos",
    "eot",
    "first",
    "image",
    "img",
    "input",
    "last",
    "mask",
    "max",
    "min",
    "newline",
    "next",
    "num",
    "output",
    "pad",
    "per",
    "placeholder",
    "prompt",
    "sep",
    "special",
    "speech",
    "start",
    "stop",
    "think",
    "unk",
    "video",
    "vision",
];
/// What a name begins with that takes no value, such as `--no-auth`.
const OF_FLAGS: &[&str] = &[
    "allow", "disable", "enable", "no", "require", "skip", "use", "with",
];
/// Values that tell nothing.
const PLAIN_VALUES: &[&str] = &["", "0", "1", "false", "none", "null", "true", HIDDEN];
/// In a header they stand before the secret.
const SCHEMES: &[&str] = &["basic", "bearer", "digest", "negotiate", "token"];

/// Shapes that nothing else has. Of `sk-` a word can have the beginning, and then there is a digit in
/// a key, or it is long.
static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let shapes = [
        "hf_[A-Za-z0-9]{20,}",
        "api_org_[A-Za-z0-9]{20,}",
        "sk-[A-Za-z0-9_-]{32,}",
        "sk-[A-Za-z_-]*[0-9][A-Za-z0-9_-]{15,}",
        "sk-[A-Za-z0-9_-]{15,}[0-9][A-Za-z0-9_-]*",
        "gh[pousr]_[A-Za-z0-9]{20,}",
        "github_pat_[A-Za-z0-9_]{20,}",
        "glpat-[A-Za-z0-9_-]{16,}",
        "(?:AKIA|ASIA)[A-Z0-9]{16}",
        "xox[abeprs]-[A-Za-z0-9-]{10,}",
        "AIza[A-Za-z0-9_-]{30,}",
        "nvapi-[A-Za-z0-9_-]{20,}",
        r"eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+",
    ];
    Regex::new(&format!(r"\b(?:{})", shapes.join("|"))).ok()
});
/// The password of `scheme://user:password@host`.
static PASSWORD_OF_URL: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@").ok());
/// The password of `user:password@host`. A digest of an image, `image:tag@sha256:…`, looks the same.
static PASSWORD_OF_USER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(^|[\s"'=])([A-Za-z][A-Za-z0-9._-]*):[^\s/:@"']+@([A-Za-z][A-Za-z0-9.-]*)"#).ok()
});
/// `"name": "value"`, as in JSON and Python, and as in JSON that is a text in JSON.
static QUOTED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(\\*["']([A-Za-z0-9_.-]+)\\*["']\s*:\s*)(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|(\\+)"([^"\\]*)\\+")"#).ok()
});

/// A text, a command line for one, without secrets.
pub fn masked(text: &str) -> Cow<'_, str> {
    let text = replaced(&QUOTED, text, |found: &Captures<'_>| {
        let whole = found.get(0).map_or("", |whole| whole.as_str());
        let (head, name) = (&found[1], &found[2]);
        let value = found
            .get(3)
            .or(found.get(4))
            .or(found.get(6))
            .map_or("", |value| value.as_str());
        let escape = found.get(5).map_or("", |escape| escape.as_str());
        match is_secret_name(name) && !is_plain(value) {
            true => format!("{head}{escape}\"{HIDDEN}{escape}\""),
            false => whole.to_owned(),
        }
    });
    let text = replaced(&PASSWORD_OF_URL, text, format!("$1:{HIDDEN}@"));
    let text = replaced(&PASSWORD_OF_USER, text, |found: &Captures<'_>| {
        let (before, user, host) = (&found[1], &found[2], &found[3]);
        match ["sha256", "sha512"].contains(&host) {
            true => found[0].to_owned(),
            false => format!("{before}{user}:{HIDDEN}@{host}"),
        }
    });
    let text = replaced(&SHAPES, text, HIDDEN);
    let mut follows = Follows::Nothing;
    let mut masked = String::with_capacity(text.len());
    for word in text.split_inclusive(char::is_whitespace) {
        let bare = word.trim_end_matches(char::is_whitespace);
        masked.push_str(&masked_word(bare, &mut follows));
        masked.push_str(&word[bare.len()..]);
    }
    match masked == text {
        true => text,
        false => masked.into(),
    }
}

/// The same of a command's arguments, where each stands for itself.
pub fn masked_arguments(arguments: &[String]) -> Vec<String> {
    let mut follows = Follows::Nothing;
    let masked = arguments.iter().map(|argument| match follows {
        // All of it, also where it has blanks.
        Follows::Secret if !argument.starts_with("--") && !is_plain(argument) => {
            follows = Follows::Nothing;
            HIDDEN.to_owned()
        }
        _ => match argument.contains(char::is_whitespace) {
            true => {
                follows = Follows::Nothing;
                masked(argument).into_owned()
            }
            false => {
                let by_name = masked_word(argument, &mut follows);
                if matches!(follows, Follows::Quoted(_)) {
                    follows = Follows::Nothing;
                }
                masked(&by_name).into_owned()
            }
        },
    });
    masked.collect()
}

/// The same of JSON, which stays JSON: also numbers and lists go by the name of their key. What is
/// no JSON is masked as any text.
pub fn masked_json(json: &str) -> Cow<'_, str> {
    let Ok(mut value) = serde_json::from_str::<Value>(json) else {
        return masked(json);
    };
    let before = value.clone();
    mask_value(&mut value);
    match value == before {
        true => json.into(),
        false => value.to_string().into(),
    }
}

fn mask_value(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let is_plain = match value {
                    Value::String(text) => is_plain(text),
                    Value::Null | Value::Bool(_) => true,
                    _ => false,
                };
                match is_secret_name(name) && !is_plain {
                    true => *value = HIDDEN.into(),
                    false => mask_value(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(mask_value),
        Value::String(text) => {
            if let Cow::Owned(masked) = masked(text) {
                *text = masked;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn replaced<'t>(
    pattern: &LazyLock<Option<Regex>>,
    text: impl Into<Cow<'t, str>>,
    by: impl Replacer,
) -> Cow<'t, str> {
    let text = text.into();
    let Some(pattern) = &**pattern else {
        return text;
    };
    match pattern.replace_all(&text, by) {
        Cow::Owned(replaced) if replaced != *text => replaced.into(),
        _ => text,
    }
}

/// What the next word is, by the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    Nothing,
    Secret,
    /// `user:password`, as behind `curl -u`.
    Login,
    /// More of a secret, up to the word that ends with this.
    Quoted(char),
}

const QUOTES: [char; 2] = ['"', '\''];

fn masked_word<'w>(word: &'w str, follows: &mut Follows) -> Cow<'w, str> {
    let bare = word.trim_matches(AROUND);
    if let Follows::Quoted(quote) = *follows {
        if word.trim_end_matches([',', ';']).ends_with(quote) {
            *follows = Follows::Nothing;
        }
        return hidden(word);
    }
    if bare.is_empty() {
        return word.into();
    }
    let is_scheme = SCHEMES.contains(&bare.to_ascii_lowercase().as_str());
    if *follows == Follows::Secret && !bare.starts_with("--") && !is_scheme {
        *follows = left_open(word);
        return hidden(word);
    }
    if *follows == Follows::Login
        && let Some((user, password)) = bare.split_once(':')
        && !is_number(user)
    {
        *follows = Follows::Nothing;
        let (before, after) = word.split_at(word.len() - word.trim_start_matches(AROUND).len());
        let after = &after[bare.len()..];
        return match is_plain(password) {
            true => word.into(),
            false => format!("{before}{user}:{HIDDEN}{after}").into(),
        };
    }
    let is_bearer = bare.eq_ignore_ascii_case("bearer");
    let name = bare
        .strip_suffix(':')
        .or_else(|| Some(bare).filter(|bare| bare.starts_with('-')));
    let is_named = name.is_some_and(|name| !name.contains('=') && is_secret_name(name));
    let stays = *follows == Follows::Secret && is_scheme;
    *follows = match is_bearer || is_named || stays {
        true => Follows::Secret,
        false if ["-u", "--user"].contains(&bare) => Follows::Login,
        false => Follows::Nothing,
    };
    masked_assignments(word, follows)
}

/// What can stand around a word.
const AROUND: [char; 4] = ['"', '\'', ',', ';'];

/// A secret without what stands around it.
fn hidden(word: &str) -> Cow<'_, str> {
    let bare = word.trim_matches(AROUND);
    if is_plain(bare) {
        return word.into();
    }
    let (before, rest) = word.split_at(word.len() - word.trim_start_matches(AROUND).len());
    format!("{before}{HIDDEN}{}", &rest[bare.len()..]).into()
}

/// Whether a secret goes on behind this word, because a quote is open.
fn left_open(word: &str) -> Follows {
    let quote = word.chars().next().filter(|first| QUOTES.contains(first));
    match quote {
        Some(quote) if word.matches(quote).count() == 1 => Follows::Quoted(quote),
        _ => Follows::Nothing,
    }
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `name=value`, in an address also several of them.
fn masked_assignments<'w>(word: &'w str, follows: &mut Follows) -> Cow<'w, str> {
    let ends: &[char] = match word.contains("://") {
        true => &['&', '#'],
        false => &[],
    };
    let mut masked = String::new();
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('=') {
        masked.push_str(before);
        masked.push('=');
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        let name = before
            .rsplit(|letter| !is_of_name(letter))
            .next()
            .unwrap_or_default();
        let (value, others) = after.split_at(after.find(ends).unwrap_or(after.len()));
        rest = match is_secret_name(name) && !is_plain(value) {
            true => {
                masked.push_str(&hidden(value));
                if let open @ Follows::Quoted(_) = left_open(value) {
                    *follows = open;
                }
                others
            }
            false => after,
        };
    }
    masked.push_str(rest);
    match masked == word {
        true => word.into(),
        false => masked.into(),
    }
}

fn is_plain(value: &str) -> bool {
    let value = value.trim_matches(['"', '\'']);
    PLAIN_VALUES
        .iter()
        .any(|plain| value.eq_ignore_ascii_case(plain))
}

/// Whether what is called so is a secret: an option, a variable, a key of JSON.
fn is_secret_name(name: &str) -> bool {
    // The directory of a process, as shells have it.
    if name == "PWD" {
        return false;
    }
    let words = words_of(name);
    let Some((last, before)) = words.split_last() else {
        return false;
    };
    let previous = before.last().map(String::as_str);
    let is_flag = words
        .first()
        .is_some_and(|first| OF_FLAGS.contains(&first.as_str()));
    match last.as_str() {
        _ if is_flag && !before.is_empty() => false,
        "token" => previous.is_none_or(|previous| !OF_VOCABULARY.contains(&previous)),
        "key" => previous.is_some_and(|previous| KINDS_OF_KEY.contains(&previous)),
        last => LAST_WORDS.contains(&last),
    }
}

/// The words of a name, in lower case: of `--api-key`, `API_KEY` and `apiKey` the same.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for letter in name.chars() {
        let is_border = matches!(letter, '-' | '_' | '.');
        if is_border || (letter.is_ascii_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if !is_border && let Some(word) = words.last_mut() {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests;
