//! `record --requests`: what a load generator wrote meanwhile is imported once the recording is
//! closed.

use super::afterwards;
use crate::cli::output::say;
use memtrace_host::Person;
use memtrace_model::quoted;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The word for files that are looked for.
const AUTO: &str = "auto";

/// Imports them, and says what came of it.
pub(super) fn import(wanted: &[PathBuf], dir: &Path, person: Option<&Person>, is_quiet: bool) {
    let mut words: Vec<OsString> = ["import", "requests"].map(OsString::from).to_vec();
    let mut recording = OsString::from("--recording=");
    recording.push(dir);
    words.push(recording);
    let is_auto = |path: &&PathBuf| path.as_os_str() == AUTO;
    if wanted.iter().any(|path| is_auto(&path)) {
        words.push("--auto".into());
    }
    words.push("--".into());
    let named = wanted.iter().filter(|path| !is_auto(path));
    words.extend(named.map(|path| path.clone().into_os_string()));
    let slow = (!is_quiet).then_some("importing requests ...");
    match afterwards::run(&words, person, slow) {
        Ok(lines) if !is_quiet => lines.iter().for_each(|line| say(line)),
        Ok(_) => {}
        Err(reason) => say(&format!(
            "requests are not imported: {reason}; to import them: memtrace import requests -r {} \
             FILE",
            quoted(&dir.display().to_string())
        )),
    }
}
