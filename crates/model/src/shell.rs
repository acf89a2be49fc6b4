//! Words of a command that a person is to type.

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:+=@%,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    match word.chars().any(char::is_control) {
        false => format!("'{}'", word.replace('\'', r"'\''")),
        // ksh, bash, zsh and POSIX 2024 read these so.
        true => {
            let escaped: String = word.chars().map(escaped).collect();
            format!("$'{escaped}'")
        }
    }
}

fn escaped(c: char) -> String {
    match c {
        '\'' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\x{:02x}", u32::from(c)),
        c => c.to_string(),
    }
}
