//! What to call a process: the title it gave itself, else its command line, else its comm.
//!
//! Names change. Ray rewrites titles at every call, vLLM sets its own only after the device is
//! up, when the memory of loading is long taken. So a process is called what it was called at
//! its peak; a title that came later names it too, where it had none of its own before.

use memtrace_model::tables::{TitleRow, TitleSource};
use memtrace_model::{BootNs, MAIN, Role, trim_title};
use memtrace_report::{columns, shorten, visible};
use std::collections::HashSet;
use std::sync::Arc;

/// A name inside a sentence, kept short.
pub(super) fn in_words(name: &str) -> String {
    const WIDTH: usize = 48;
    shorten(&visible(name), WIDTH).into_owned()
}

/// A path, kept short: of a long one the last parts, which say most.
pub(super) fn path_in_words(path: &str) -> String {
    const WIDTH: usize = 32;
    let path = visible(path);
    if columns(&path) <= WIDTH {
        return path.into_owned();
    }
    let mut ends = path.match_indices('/').map(|(place, _)| &path[place..]);
    let fits = |end: &&str| columns(end) < WIDTH;
    let end = ends.clone().find(fits).or(ends.next_back());
    in_words(&end.map_or(path.clone(), |end| format!("…{end}").into()))
}

/// Keeps each text once: thousands of children share a command line.
#[derive(Clone, Debug, Default)]
pub(super) struct Interner(HashSet<Arc<str>>);

impl Interner {
    pub(super) fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.0.get(text) {
            return Arc::clone(known);
        }
        let text: Arc<str> = Arc::from(text);
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// Follows the titles of one process, in the order of time.
#[derive(Clone, Debug, Default)]
pub(super) struct NameTrack {
    /// The command line of the image that ran at the peak.
    image: Option<Arc<str>>,
    /// The title which that image gave itself, and what the process was by then.
    own: Option<(Arc<str>, Option<String>)>,
    /// The newest title of all.
    last: Option<Arc<str>>,
    is_past_the_image: bool,
}

impl NameTrack {
    /// Takes the next title; `peak` is when the process's own peak was.
    pub(super) fn take(&mut self, row: &TitleRow, peak: Option<BootNs>, texts: &mut Interner) {
        let Some(title) = row.title.as_deref().map(trim_title) else {
            return;
        };
        if title.is_empty() {
            return;
        }
        let title = texts.intern(title);
        self.last = Some(Arc::clone(&title));
        let is_before_peak = peak.is_none_or(|peak| row.boot_ns <= peak);
        let is_new_image = matches!(
            row.source,
            Some(TitleSource::First | TitleSource::Exec) | None
        );
        if self.is_past_the_image {
            return;
        }
        if is_new_image {
            if is_before_peak || self.image.is_none() {
                self.image = Some(title);
                self.own = None;
            } else {
                self.is_past_the_image = true;
            }
        } else if self.image.as_ref() != Some(&title) && (is_before_peak || self.own.is_none()) {
            self.own = Some((title, row.role.clone()));
        }
    }

    /// The title or command line at the peak.
    pub(super) fn at_peak(&self) -> Option<&Arc<str>> {
        let own = self.own.as_ref().map(|(title, _)| title);
        own.or(self.image.as_ref())
    }

    /// What to call a process of this role, by what it was at its peak, and the method that ran
    /// then; `None` when another program ran then, whose role is not known.
    pub(super) fn label(&self, role: &Role) -> Option<(String, Option<&str>)> {
        if self.is_past_the_image || role.role == MAIN {
            return None;
        }
        let is_of_main = role.role.strip_prefix("fork of ") == Some(MAIN);
        match self.at_peak().filter(|_| is_of_main) {
            // It runs what the main process runs, which has a name.
            Some(title) => Some((format!("fork of {}", display(Some(title), "")), None)),
            None => Some(self.label_then(role)),
        }
    }

    /// What to call a process that had this role at its peak, and the method that ran then.
    pub(super) fn label_then(&self, role: &Role) -> (String, Option<&str>) {
        let Some((title, Some(then))) = &self.own else {
            return (role.to_string(), None);
        };
        // Another task of the same worker; but what it was before it had anything to do is not
        // what it is.
        let kind = |role: &str| role.split(' ').next().map(str::to_owned);
        if kind(then) != kind(&role.role) {
            return (role.to_string(), None);
        }
        let role = Role {
            role: then.clone(),
            ..role.clone()
        };
        let class = then.rsplit(' ').next().unwrap_or(then);
        // The method that ran: `Trainer.step`.
        let method = title.rsplit_once(class).map(|(_, method)| method);
        let method = method.filter(|method| method.starts_with('.'));
        (role.to_string(), method)
    }

    /// Whether it gave itself a title by then.
    pub(super) fn has_own_title(&self) -> bool {
        self.own.is_some()
    }

    /// The last one.
    pub(super) fn last(&self) -> Option<&Arc<str>> {
        self.last.as_ref()
    }
}

/// The name for a person: the title or command line, with the directories of its first two
/// words left out, else the comm in brackets as ps shows what has no command line.
pub(super) fn display(title: Option<&str>, comm: &str) -> String {
    let title = title.map(trim_title).unwrap_or_default();
    if title.is_empty() {
        return format!("[{comm}]");
    }
    title
        .split(' ')
        .enumerate()
        .map(|(position, word)| {
            if position < 2 && word.starts_with('/') {
                word.rsplit('/')
                    .find(|part| !part.is_empty())
                    .unwrap_or(word)
            } else {
                word
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// What processes that do the same thing have in common: the program (and for an interpreter
/// what it runs), with numbers masked.
pub(super) fn shape(name: &str) -> String {
    // A snippet for an interpreter has line breaks.
    let is_between = |c: char| c.is_whitespace() || c.is_control();
    let mut words = name.split(is_between).filter(|word| !word.is_empty());
    let program = words.next().unwrap_or_default();
    if !is_interpreter(program) {
        return mask_numbers(program);
    }
    let mut shape = program.to_owned();
    for word in words {
        shape.push(' ');
        shape.push_str(&mask_numbers(word));
        if !word.starts_with('-') {
            break;
        }
    }
    shape
}

fn is_interpreter(program: &str) -> bool {
    const NAMES: [&str; 10] = [
        "python", "bash", "sh", "dash", "zsh", "perl", "ruby", "node", "java", "env",
    ];
    let is_version = |text: &str| text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let mut versions = NAMES.iter().filter_map(|name| program.strip_prefix(name));
    versions.any(is_version)
}

/// Ranks and counters (`TP13`, `DP0_TP1`) are masked; a digit inside a word (`cc1plus`) is
/// part of the name.
pub(super) fn mask_numbers(word: &str) -> String {
    let mut masked = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|c: char| !c.is_ascii_digit());
        let (number, tail) = number.split_at(end.unwrap_or(number.len()));
        masked.push_str(before);
        masked.push_str(if tail.starts_with(char::is_alphabetic) {
            number
        } else {
            "#"
        });
        rest = tail;
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::{Upid, WallNs};

    fn row(at: i64, source: TitleSource, title: &str) -> TitleRow {
        TitleRow {
            ts: WallNs(at),
            boot_ns: BootNs(at),
            upid: Upid(1),
            comm: "python3".to_owned(),
            title: Some(title.into()),
            role: None,
            source: Some(source),
        }
    }

    fn name_at(peak: i64, rows: &[TitleRow]) -> String {
        let mut texts = Interner::default();
        let mut track = NameTrack::default();
        for row in rows {
            track.take(row, Some(BootNs(peak)), &mut texts);
        }
        track
            .at_peak()
            .map(|name| name.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn a_worker_is_called_by_the_title_it_sets_after_its_peak() {
        let rows = [
            row(0, TitleSource::Exec, "python3 -c spawn_main"),
            row(50, TitleSource::Rename, "VLLM::Worker_TP0\0\0\0"),
        ];
        assert_eq!(name_at(20, &rows), "VLLM::Worker_TP0");
    }

    #[test]
    fn a_ray_actor_is_called_by_the_method_that_ran_at_its_peak() {
        let rows = [
            row(0, TitleSource::Exec, "python3 default_worker.py"),
            row(10, TitleSource::Rename, "ray::IDLE"),
            row(20, TitleSource::Rename, "ray::Trainer.update"),
            row(30, TitleSource::Rename, "ray::IDLE"),
        ];
        assert_eq!(name_at(25, &rows), "ray::Trainer.update");
    }

    #[test]
    fn the_program_that_ran_at_the_peak_names_the_process_not_a_later_exec() {
        let rows = [
            row(0, TitleSource::Exec, "bash build.sh"),
            row(50, TitleSource::Exec, "sleep 1"),
            row(60, TitleSource::Rename, "other"),
        ];
        assert_eq!(name_at(20, &rows), "bash build.sh");
        assert_eq!(name_at(55, &rows), "other");
    }

    #[test]
    fn names_lose_the_directories_of_their_first_two_words() {
        let cases = [
            (
                "/opt/venv/bin/python3 /opt/venv/bin/vllm serve /models/q",
                "python3 vllm serve /models/q",
            ),
            ("VLLM::EngineCore", "VLLM::EngineCore"),
            ("/", "/"),
        ];
        for (title, name) in cases {
            assert_eq!(display(Some(title), "x"), name);
        }
        assert_eq!(display(None, "kworker/0:1"), "[kworker/0:1]");
        assert_eq!(display(Some(" \0"), "zombie"), "[zombie]");
    }

    #[test]
    fn a_ray_worker_is_called_by_what_it_did_at_its_peak() {
        let titled = |at, title: &str, role: &str| TitleRow {
            role: Some(role.to_owned()),
            ..row(at, TitleSource::Rename, title)
        };
        let rows = [
            titled(10, "ray::IDLE", "idle worker"),
            titled(20, "ray::load", "task load"),
            titled(30, "ray::IDLE", "task load"),
            titled(40, "ray::train", "task train"),
        ];
        let label = |peak: i64, rows: &[TitleRow], role: &str| {
            let mut texts = Interner::default();
            let mut track = NameTrack::default();
            for row in rows {
                track.take(row, Some(BootNs(peak)), &mut texts);
            }
            let role = Role {
                framework: Some("Ray".to_owned()),
                role: role.to_owned(),
                rank: None,
            };
            let label = track.label(&role);
            label.map(|(name, method)| (name, method.map(str::to_owned)))
        };
        let task = |peak| label(peak, &rows, "task train").expect("a label").0;
        assert_eq!(task(35), "Ray task load");
        assert_eq!(task(45), "Ray task train");
        assert_eq!(task(15), "Ray task train");
        let calls = [
            titled(10, "ray::Trainer", "actor Trainer"),
            titled(20, "ray::Trainer.step", "actor Trainer"),
        ];
        let actor = |peak| label(peak, &calls, "actor Trainer").expect("a label");
        let called = "Ray actor Trainer".to_owned();
        assert_eq!(actor(15), (called.clone(), None));
        assert_eq!(actor(25), (called.clone(), Some(".step".to_owned())));
        let ended = [
            calls.as_slice(),
            &[titled(30, "ray::Trainer", "actor Trainer")],
        ]
        .concat();
        let after = label(35, &ended, "actor Trainer").expect("a label");
        assert_eq!(after, (called, None), "the method had ended");
    }

    #[test]
    fn a_fork_of_the_main_process_has_its_name() {
        let mut track = NameTrack::default();
        let title = row(0, TitleSource::First, "/usr/bin/python3 train.py");
        track.take(&title, None, &mut Interner::default());
        let label = |role: &str| {
            let role = Role {
                role: role.to_owned(),
                ..Role::default()
            };
            track.label(&role).map(|(name, _)| name)
        };
        assert_eq!(
            label("fork of main").as_deref(),
            Some("fork of python3 train.py")
        );
        assert_eq!(
            label("fork of fork server").as_deref(),
            Some("fork of fork server")
        );
        assert_eq!(label(MAIN), None);
    }

    #[test]
    fn a_long_path_is_its_last_parts() {
        let toolchain = "/opt/rust/toolchains/stable-x86_64/lib/librustc_driver-5d6f.so";
        assert_eq!(path_in_words(toolchain), "…/lib/librustc_driver-5d6f.so");
        let gone = path_in_words(&format!("{toolchain} (deleted)"));
        assert_eq!(gone, "…/librustc_driver-5d6f.so (deleted)");
        let kept = ["/usr/lib/libc.so.6", "/models/qwen/model.safetensors"];
        assert_eq!(kept.map(path_in_words), kept);
        let long = path_in_words(&format!("/{}", "x".repeat(200)));
        assert_eq!(columns(&long), 48);
    }

    #[test]
    fn similar_processes_have_one_shape() {
        let cases = [
            ("VLLM::Worker_TP13", "VLLM::Worker_TP#"),
            ("cc1plus -quiet /tmp/a.cpp", "cc1plus"),
            ("python3 train.py --lr 3", "python3 train.py"),
            ("python3.12 -B -c from x import y", "python3.12 -B -c from"),
            ("python3 -c \nimport sys\nif x", "python3 -c import"),
            ("pythonic tool", "pythonic"),
            ("VLLM::Worker_DP0_PP0_TP1", "VLLM::Worker_DP#_PP#_TP#"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(shape(name), expected);
        }
    }
}
