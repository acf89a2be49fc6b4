//! A recording that is not whole: whatever is asked of it, what is missing is said.

use super::*;
use memtrace_tests::beside::beside;
use memtrace_tests::program::workload;
use std::path::{Path, PathBuf};

/// What is asked of the recording that stands for `@`, and of the root that it is below, `^`; `+` stands
/// for a folder to write to. What comes after `&&` is asked of what was written there.
const VIEWS: &[&str] = &[
    "report @",
    "report @ --full",
    "report @ --tree",
    "report @ --at peak",
    "report @ --at +0.3s -f json",
    "report @ --steps",
    "report @ --steps -f csv",
    "report @ --phase step_*",
    "report @ --from +0.1s --to +0.6s",
    "report @ --from +0.1s --to +0.6s -f csv",
    "report @ --process memtrace-workload",
    "report @ --style startup",
    "report @ --top 1",
    "report @ --local-time",
    "report @ -f md",
    "report @ -f json",
    "report @ -f csv",
    "report @ -f html -o +page.html",
    "report @ -o +report.txt",
    "report @ --reduce",
    "diff @ @",
    "diff @ @ -f json",
    "diff @ @ --fail-above 5%",
    "diff @ @ -f html -o +diff.html",
    "export @ --force -o +",
    "export @ --force --to csv --interval 100ms -o +",
    "export @ --force --to jsonl -o +",
    "export @ --force --to summary -o +",
    "export @ --force --to gpu -o +",
    "export @ --force --to perfetto -o +",
    "top -r @ --once",
    "top -r @ --once --view processes",
    "report ^",
    "report ^ -f json",
    "report ^ -f csv",
    "report ^ -f html -o +run.html",
    "report ^ --reduce",
    "diff ^ ^",
    "push @ + && report +",
];

/// Sections that need no option of their own.
fn sections() -> Result<Vec<String>> {
    let listed = String::from_utf8(memtrace(["report", "--list-sections"])?.stdout)?;
    let names = listed.lines().filter_map(|line| line.split(' ').next());
    let names = names.filter(|name| !["at", "phase", "process"].contains(name));
    Ok(names.map(str::to_owned).collect())
}

/// The answer of a view: what it wrote anywhere, what it said, and its status.
struct Answer {
    written: Vec<(PathBuf, Vec<u8>)>,
    said: String,
    status: Option<i32>,
}

fn ask(view: &str, recording: &Path, options: &[&str]) -> Result<Answer> {
    let folder = tempfile::tempdir()?;
    let root = recording.ancestors().nth(3).context("a root")?;
    let place = |word: &str| match word.strip_prefix('+') {
        Some("") => folder.path().display().to_string(),
        Some(name) if name.contains(".html") || name.contains(".txt") => {
            folder.path().join(name).display().to_string()
        }
        _ if word == "@" => recording.display().to_string(),
        _ if word == "^" => root.display().to_string(),
        _ => word.to_owned(),
    };
    let (first, last) = view.split_once(" && ").unwrap_or(("", view));
    let (mut written, mut said) = (Vec::new(), String::new());
    if !first.is_empty() {
        let output = memtrace(first.split(' ').map(place))?;
        said += &String::from_utf8_lossy(&output.stderr);
    }
    let options = options.iter().map(|option| (*option).to_owned());
    let output = memtrace(last.split(' ').map(place).chain(options))?;
    said += &String::from_utf8_lossy(&output.stderr);
    // Its name is another each time.
    let folder_name = folder.path().display().to_string();
    let answered = String::from_utf8_lossy(&output.stdout).replace(&folder_name, "+");
    // The line of `top` with the age of an unclosed recording is another at each look.
    let is_age = |line: &&str| view.starts_with("top ") && line.contains("  recorder gone");
    let answered: String = answered.split_inclusive('\n').skip_while(is_age).collect();
    written.push((PathBuf::new(), answered.into_bytes()));
    for entry in std::fs::read_dir(folder.path())? {
        let path = entry?.path();
        if path.is_file() {
            let bytes = std::fs::read(&path)?;
            written.push((path.file_name().context("a name")?.into(), bytes));
        }
    }
    written.sort();
    Ok(Answer {
        written,
        said: said.replace(&folder_name, "+"),
        status: output.status.code(),
    })
}

/// What can become of a file, by a disk or by a copy that was interrupted.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Bit,
    CutOff,
    Deleted,
    /// The file is there under the next number too.
    Doubled,
    /// The file of its name is of another recording of the same minute.
    OfAnother,
    /// The file and one of another table have each other's names.
    Exchanged,
}

const FAULTS: [Fault; 6] = [
    Fault::Deleted,
    Fault::Bit,
    Fault::OfAnother,
    Fault::Exchanged,
    Fault::Doubled,
    Fault::CutOff,
];

/// How many faults are tried of each of two recordings; `MEMTRACE_TEST_FAULTS` says another number.
const TRIED: usize = 6;

/// At how many places of a file one bit is another, or the file ends.
const PLACES: usize = 16;

/// A recording before a fault, to be put back.
struct Before(Vec<(PathBuf, Option<Vec<u8>>)>);

impl Fault {
    /// Has it happen to a file of a recording for the first time, the second and so on: at another
    /// place of the file each time. `None` where it can't, or would be the same again.
    fn make(
        self,
        time: usize,
        file: &Path,
        other: &Path,
        of_another: &Path,
    ) -> Result<Option<Before>> {
        let bytes = std::fs::read(file)?;
        let mut before = vec![(file.to_path_buf(), Some(bytes.clone()))];
        let place = |first: usize| bytes.len() * ((first + 3 * time) % PLACES) / PLACES;
        match self {
            Self::Bit => {
                let at = place(PLACES / 4);
                let mut damaged = bytes;
                *damaged.get_mut(at).context("an empty file")? ^= 0x10;
                std::fs::write(file, damaged)?;
            }
            Self::CutOff => std::fs::write(file, &bytes[..place(PLACES / 2)])?,
            _ if time > 0 => return Ok(None),
            Self::Deleted => std::fs::remove_file(file)?,
            Self::Doubled => {
                let Some(next) = next_number(file).filter(|next| !next.exists()) else {
                    return Ok(None);
                };
                std::fs::write(&next, bytes)?;
                before.push((next, None));
            }
            Self::OfAnother if of_another.exists() => drop(std::fs::copy(of_another, file)?),
            Self::Exchanged if file != other => {
                let swapped = std::fs::read(other)?;
                std::fs::write(other, bytes)?;
                std::fs::write(file, &swapped)?;
                before.push((other.to_path_buf(), Some(swapped)));
            }
            Self::OfAnother | Self::Exchanged => return Ok(None),
        }
        Ok(Some(Before(before)))
    }
}

impl Before {
    fn put_back(self) -> Result<()> {
        for (path, bytes) in self.0 {
            match bytes {
                Some(bytes) => std::fs::write(path, bytes)?,
                None => std::fs::remove_file(path)?,
            }
        }
        Ok(())
    }
}

/// The path of the same file with the next number.
fn next_number(file: &Path) -> Option<PathBuf> {
    let name = file.file_name()?.to_str()?;
    let at = name.rfind('-')? + 1;
    let number: u32 = name.get(at..at + 5)?.parse().ok()?;
    let next = format!("{}{:05}{}", &name[..at], number + 1, &name[at + 5..]);
    Some(file.with_file_name(next))
}

/// The files of a recording, of those with most to tell the first.
fn files(recording: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(recording)? {
        let path = entry?.path();
        if path.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                files.push(entry?.path());
            }
        } else {
            files.push(path);
        }
    }
    let first = ["mem", "process", "cgroup_mem", "manifest", "mark", "run"];
    files.sort();
    files.sort_by_key(|file| {
        let path = file.strip_prefix(recording).unwrap_or(file);
        let path = path.strip_prefix("spool").unwrap_or(path);
        let is_first = |name: &str| path.to_string_lossy().starts_with(name);
        first
            .iter()
            .position(|name| is_first(name))
            .unwrap_or(first.len())
    });
    Ok(files)
}

/// A recording of three steps; one that was not closed has lost its recorder.
fn recorded(is_closed: bool) -> Result<Recorded> {
    let script = format!(
        "for n in 1 2 3; do {} mark step_$n; {} spike --count 1 --hold-ms 150 --bytes 64M; done",
        program::memtrace()?.display(),
        workload()?.display()
    );
    if is_closed {
        return Recorder::of_command(&[], &shell(&script))?.wait();
    }
    let mut recorder = Recorder::of_command(&[], &shell(&format!("{script}; echo done; sleep 3")))?;
    while recorder.line()?.trim() != "done" {}
    // What was seen is on disk after a second.
    std::thread::sleep(Duration::from_millis(1_500));
    recorder.signal(libc::SIGKILL)?;
    Ok(recorder.wait_alone()?.0)
}

#[test]
fn no_view_of_a_recording_that_is_not_whole_is_silent() -> Result<()> {
    let of_sections = sections()?;
    let of_sections = of_sections
        .iter()
        .map(|name| format!("report @ --section {name}"));
    let views: Vec<String> = VIEWS
        .iter()
        .map(|view| (*view).to_owned())
        .chain(of_sections)
        .collect();
    let tried = std::env::var("MEMTRACE_TEST_FAULTS").ok();
    let tried = tried.map_or(Ok(TRIED), |tried| tried.parse())?;
    let mut silent = 0;
    for is_closed in [true, false] {
        let root = tempfile::tempdir()?;
        let placed = |host: &str| -> Result<PathBuf> {
            let of_host = root.path().join("run=1").join(host);
            std::fs::create_dir_all(&of_host)?;
            let recording = of_host.join("rec=20261123T121913Z");
            std::fs::rename(recorded(is_closed)?.path(), &recording)?;
            Ok(recording)
        };
        let (recording, another) = (placed("host=a")?, placed("host=b")?);
        let whole = beside(&views, |view| ask(view, &recording, &["--strict"]))?;
        for (view, answer) in views.iter().zip(&whole) {
            // Of a recorder that was killed the last batch can be half written, which is reported.
            let is_whole = answer.status == Some(0) || !is_closed;
            assert!(is_whole, "{view}: {}", answer.said);
            assert!(!answer.said.contains(".parquet"), "{view}: {}", answer.said);
        }
        let files = files(&recording)?;
        // Each kind of each file: one kind more for all of them each time round.
        let made = (0..PLACES * FAULTS.len() * files.len()).map(|place| {
            let round = place / files.len();
            let fault = FAULTS[(place + round) % FAULTS.len()];
            (fault, &files[place % files.len()], round / FAULTS.len())
        });
        let mut count = 0;
        for (fault, file, time) in made {
            if count == tried {
                break;
            }
            let name = file.strip_prefix(&recording)?;
            let other = files.iter().rev().find(|other| {
                let has_kind = other.extension() == file.extension();
                has_kind && *other != file
            });
            let other = other.map_or(file.as_path(), PathBuf::as_path);
            let of_another = another.join(name);
            let Some(before) = fault.make(time, file, other, &of_another)? else {
                continue;
            };
            count += 1;
            let answers = beside(&views, |view| ask(view, &recording, &["--strict"]))?;
            for ((view, before), text) in views.iter().zip(&whole).zip(answers) {
                let is_said = text.said != before.said
                    && matches!(text.status, Some(1 | 4))
                    && !text.said.is_empty();
                let is_same = text.written == before.written;
                if !(is_said || is_same) {
                    silent += 1;
                    let (shown, status, said) = (name.display(), text.status, text.said);
                    println!("{view}, {shown} {fault:?}, closed {is_closed}: {status:?} {said}");
                }
            }
            before.put_back()?;
        }
        println!("{count} faults of {} views", views.len());
    }
    assert_eq!(silent, 0, "views are silent");
    Ok(())
}
