//! Command lines and titles without what is secret in them, for files that go to others.

/// Options whose value is a secret.
const SECRETS: [&str; 5] = [
    "--api-key",
    "--hf-token",
    "--token",
    "--password",
    "--secret",
];
const HIDDEN: &str = "***";

/// A command line, without what is secret in it.
pub(super) fn without_secrets(cmdline: &str) -> String {
    let mut is_secret = false;
    let words = cmdline.split(' ').map(|word| {
        if std::mem::take(&mut is_secret) {
            return HIDDEN.to_owned();
        }
        match word.split_once('=') {
            Some((option, _)) if SECRETS.contains(&option) => format!("{option}={HIDDEN}"),
            _ => {
                is_secret = SECRETS.contains(&word);
                word.to_owned()
            }
        }
    });
    words.collect::<Vec<_>>().join(" ")
}
