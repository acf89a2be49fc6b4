//! How the profiler of a server is set up, by the command line that started it.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// The option of `vllm serve`. Trainers pass it on under names that end so.
const OPTION: &str = "profiler-config";

/// The keys that decide what can be found afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct ProfilerConfig {
    /// `torch` or `cuda`.
    pub(super) profiler: Option<String>,
    pub(super) torch_profiler_dir: Option<PathBuf>,
    /// Iterations that it lets pass first.
    pub(super) delay_iterations: u64,
    /// Iterations after which it ends by itself; 0 is never.
    pub(super) max_iterations: u64,
    /// Whether only the workers write traces.
    pub(super) ignore_frontend: bool,
}

impl ProfilerConfig {
    /// Out of the words of a command line: `None` where it has none, or one that can't be read.
    pub(super) fn of(words: &[String]) -> Option<Self> {
        let mut all = Map::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(word) = word.strip_prefix("--") else {
                continue;
            };
            let (option, given) = match word.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (word, None),
            };
            let (name, key) = match option.split_once('.') {
                Some((name, key)) => (name, Some(key)),
                None => (option, None),
            };
            if !name.replace('_', "-").ends_with(OPTION) {
                continue;
            }
            let value = given.or_else(|| words.next().cloned())?;
            match key {
                None => all.extend(serde_json::from_str::<Map<String, Value>>(&value).ok()?),
                Some(key) => {
                    let value = serde_json::from_str(&value).unwrap_or(Value::String(value));
                    all.insert(key.replace('-', "_"), value);
                }
            }
        }
        match all.is_empty() {
            true => None,
            false => serde_json::from_value(Value::Object(all)).ok(),
        }
    }

    /// Where PyTorch's profiler writes; `None` where it does not, or somewhere else.
    pub(super) fn dir(&self) -> Option<&Path> {
        self.torch_profiler_dir
            .as_deref()
            .filter(|dir| dir.is_absolute())
    }

    /// Whether another program has to write what it sees.
    pub(super) fn is_cuda(&self) -> bool {
        self.profiler.as_deref() == Some("cuda")
    }

    /// For a person.
    pub(super) fn in_words(&self) -> String {
        let mut words = match &self.profiler {
            Some(profiler) => format!("profiler {profiler}"),
            None => "no profiler".to_owned(),
        };
        if let Some(dir) = self.dir() {
            words.push_str(&format!(", traces in {}", dir.display()));
        }
        let iterations = [
            ("delay_iterations", self.delay_iterations),
            ("max_iterations", self.max_iterations),
        ];
        for (name, count) in iterations.into_iter().filter(|(_, count)| *count > 0) {
            words.push_str(&format!(", {name} {count}"));
        }
        if self.ignore_frontend {
            words.push_str(", ignore_frontend");
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Option<ProfilerConfig> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        ProfilerConfig::of(&words)
    }

    #[test]
    fn every_way_to_write_the_option_is_read() {
        let json = r#"{"profiler":"torch","torch_profiler_dir":"/t","max_iterations":3}"#;
        let expected = read(&["vllm", "serve", "--profiler-config", json]).unwrap();
        assert_eq!(expected.dir(), Some(Path::new("/t")));
        assert_eq!(expected.max_iterations, 3);
        assert_eq!(
            expected.in_words(),
            "profiler torch, traces in /t, max_iterations 3"
        );
        let joined = format!("--vllm-profiler-config={json}");
        let single = [
            "--profiler-config.profiler=torch",
            "--profiler_config.torch_profiler_dir",
            "/t",
            "--profiler-config.max-iterations=3",
            "--port=8000",
        ];
        assert_eq!(read(&[&joined]), Some(expected.clone()));
        assert_eq!(read(&single), Some(expected));
    }

    #[test]
    fn what_is_not_there_or_can_t_be_read_is_none() {
        for words in [
            &["vllm", "serve", "--port", "8000"][..],
            &["--profiler-config"],
            &["--profiler-config", "{"],
            &["profiler-config", "{}"],
            &["--profiler-config.max_iterations=many"],
        ] {
            assert_eq!(read(words), None, "{words:?}");
        }
    }
}
