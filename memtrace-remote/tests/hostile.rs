//! The whole program against servers and files that are slow, endless or lie: it ends in time, within
//! its memory, and says of which server what was wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "tests"
)]

mod common;

use common::hostile::{Hostile, Wrong};
use common::recording::{Made, files};
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What no helper holds more of, whatever it is reported.
const MEMORY_MAX_KIB: i64 = 128 << 10;
/// What takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is called, and how long a server may keep it waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Push,
    /// What is below the address, and the bytes of `run.json`.
    Read,
    Load,
    Status,
    Sleep,
    Router,
    Profile,
    Window,
}

impl Call {
    /// Within what it ends, of which the option or the variable is three seconds: the rest is a few tries
    /// of `push`, the ten seconds in which a server says that it is well, and what a busy machine takes.
    fn seconds(self) -> u64 {
        match self {
            Self::Read | Self::Load => 8,
            Self::Push => 14,
            Self::Status | Self::Sleep | Self::Router | Self::Profile | Self::Window => 16,
        }
    }
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// It fails, and says these words and the server's name.
    Saying(&'static str),
    /// What was wanted is had nevertheless.
    Well,
}
use Ends::{Saying, Well};

/// The list of a bucket, an object, models, tokens, completions; an engine's paths.
const LIST: &str = "list-type";
const OBJECT: &str = "GET /bucket/prefix/run.json";
const PUT: &str = "PUT /bucket/";
const MODELS: &str = "/v1/models";
const COUNT: &str = "/tokenize";
const ANSWER: &str = "/v1/completions";

/// What does what wrong where, and how the program ends.
type Case = (Call, Wrong, &'static str, Ends);

const CASES: &[Case] = &[
    // A bucket's list, as `push` asks for it.
    (
        Call::Push,
        Wrong::EndlessBody,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Push,
        Wrong::EndlessLength,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Push,
        Wrong::LyingLength,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Push,
        Wrong::EndlessRefusal,
        LIST,
        Saying("400 Bad Request"),
    ),
    (
        Call::Push,
        Wrong::EndlessHead,
        LIST,
        Saying("message head is too large"),
    ),
    (
        Call::Push,
        Wrong::EndlessHeader,
        LIST,
        Saying("message head is too large"),
    ),
    (Call::Push, Wrong::EndlessTrailers, LIST, Saying("trailers")),
    (
        Call::Push,
        Wrong::EndlessContinue,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Push,
        Wrong::GiantChunk,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Push,
        Wrong::EndlessExtension,
        LIST,
        Saying("chunk extensions"),
    ),
    (
        Call::Push,
        Wrong::Drip,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Push,
        Wrong::DripHead,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Push,
        Wrong::Silent,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (Call::Push, Wrong::Closes, LIST, Saying("connection closed")),
    (
        Call::Push,
        Wrong::ClosesWithin,
        LIST,
        Saying("end of file before message length"),
    ),
    (
        Call::Push,
        Wrong::OtherProtocol,
        LIST,
        Saying("invalid HTTP version"),
    ),
    (
        Call::Push,
        Wrong::RedirectElsewhere,
        LIST,
        Saying("redirects are not followed"),
    ),
    (
        Call::Push,
        Wrong::RedirectTo("file:///etc/passwd"),
        LIST,
        Saying("redirects to file:///etc/passwd"),
    ),
    (
        Call::Push,
        Wrong::RedirectTo("ftp://127.0.0.1/"),
        LIST,
        Saying("redirects to ftp:"),
    ),
    (
        Call::Push,
        Wrong::RedirectLoop,
        LIST,
        Saying("redirects are not followed"),
    ),
    (
        Call::Push,
        Wrong::Deep,
        LIST,
        Saying("start tag not closed"),
    ),
    (Call::Push, Wrong::Wide, LIST, Well),
    (
        Call::Push,
        Wrong::EntityBomb,
        LIST,
        Saying("unrecognized entity"),
    ),
    (Call::Push, Wrong::Packed, LIST, Saying("invalid utf-8")),
    (Call::Push, Wrong::EndlessPages, LIST, Saying("has no end")),
    (Call::Push, Wrong::SamePage, LIST, Saying("has no end")),
    (Call::Push, Wrong::EmptyPages, LIST, Saying("has no end")),
    (
        Call::Push,
        Wrong::Key("../../../etc/passwd"),
        LIST,
        Saying("illegal character sequence"),
    ),
    (Call::Push, Wrong::Key("/etc/passwd"), LIST, Well),
    (
        Call::Push,
        Wrong::Key("prefix/a&#0;b"),
        LIST,
        Saying("not permitted in XML"),
    ),
    (Call::Push, Wrong::LongKey(1 << 20), LIST, Well),
    (
        Call::Push,
        Wrong::Size("18446744073709551616"),
        LIST,
        Saying("expected u64"),
    ),
    (Call::Push, Wrong::EndlessBody, PUT, Saying("ETag")),
    (
        Call::Push,
        Wrong::EndlessRefusal,
        PUT,
        Saying("400 Bad Request"),
    ),
    (
        Call::Push,
        Wrong::Silent,
        PUT,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Push,
        Wrong::RedirectElsewhere,
        PUT,
        Saying("redirects are not followed"),
    ),
    // What is read at an address.
    (
        Call::Read,
        Wrong::EndlessBody,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Read,
        Wrong::EndlessLength,
        LIST,
        Saying("answers with more than 8.00 MiB"),
    ),
    (
        Call::Read,
        Wrong::Drip,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Read,
        Wrong::Silent,
        LIST,
        Saying("nothing arrived within 3 s"),
    ),
    (
        Call::Read,
        Wrong::EndlessPages,
        LIST,
        Saying("s3://bucket/prefix: "),
    ),
    (
        Call::Read,
        Wrong::EmptyPages,
        LIST,
        Saying("s3://bucket/prefix: "),
    ),
    (Call::Read, Wrong::Wide, LIST, Well),
    (
        Call::Read,
        Wrong::Key("prefix/../../../etc/passwd"),
        LIST,
        Saying("illegal character sequence"),
    ),
    (Call::Read, Wrong::LongKey(1 << 20), LIST, Well),
    (Call::Read, Wrong::Size("18446744073709551615"), LIST, Well),
    (
        Call::Read,
        Wrong::RedirectElsewhere,
        LIST,
        Saying("redirects are not followed"),
    ),
    (
        Call::Read,
        Wrong::EndlessLength,
        OBJECT,
        Saying("answers with more than 2 B"),
    ),
    (
        Call::Read,
        Wrong::MoreThanRange,
        OBJECT,
        Saying("Content-Length"),
    ),
    (
        Call::Read,
        Wrong::OtherRange,
        OBJECT,
        Saying("answers with more than 2 B"),
    ),
    (
        Call::Read,
        Wrong::OtherTag,
        OBJECT,
        Saying("end of file before message length"),
    ),
    (
        Call::Read,
        Wrong::EndlessRefusal,
        OBJECT,
        Saying("400 Bad Request"),
    ),
    (Call::Read, Wrong::Drip, OBJECT, Saying("Content-Length")),
    // Load.
    (
        Call::Load,
        Wrong::EndlessBody,
        MODELS,
        Saying("longer than 4.00 MiB"),
    ),
    (
        Call::Load,
        Wrong::EndlessLength,
        MODELS,
        Saying("longer than 4.00 MiB"),
    ),
    (
        Call::Load,
        Wrong::EndlessHead,
        MODELS,
        Saying("message head is too large"),
    ),
    (
        Call::Load,
        Wrong::EndlessContinue,
        MODELS,
        Saying("no answer within 3 s"),
    ),
    (Call::Load, Wrong::Deep, MODELS, Saying("can't be read")),
    (Call::Load, Wrong::Wide, MODELS, Saying("can't be read")),
    (
        Call::Load,
        Wrong::Drip,
        MODELS,
        Saying("did not end within 3 s"),
    ),
    (
        Call::Load,
        Wrong::Silent,
        MODELS,
        Saying("no answer within 3 s"),
    ),
    (
        Call::Load,
        Wrong::RedirectElsewhere,
        MODELS,
        Saying("redirects are not followed"),
    ),
    (Call::Load, Wrong::EndlessBody, COUNT, Well),
    (Call::Load, Wrong::Drip, COUNT, Well),
    (Call::Load, Wrong::Silent, COUNT, Well),
    (
        Call::Load,
        Wrong::EndlessEvents,
        ANSWER,
        Saying("did not end within 3 s"),
    ),
    (
        Call::Load,
        Wrong::EndlessEvent,
        ANSWER,
        Saying("longer than 1.00 MiB"),
    ),
    (
        Call::Load,
        Wrong::EndlessComments,
        ANSWER,
        Saying("did not end within 3 s"),
    ),
    (
        Call::Load,
        Wrong::Drip,
        ANSWER,
        Saying("did not end within 3 s"),
    ),
    (
        Call::Load,
        Wrong::Wide,
        ANSWER,
        Saying("longer than 1.00 MiB"),
    ),
    (Call::Load, Wrong::Deep, ANSWER, Saying("can't be read")),
    (
        Call::Load,
        Wrong::EndlessRefusal,
        ANSWER,
        Saying("status 400"),
    ),
    (
        Call::Load,
        Wrong::Packed,
        ANSWER,
        Saying("in the midst of a line"),
    ),
    // An engine's servers, and its router.
    (
        Call::Status,
        Wrong::Silent,
        "/health",
        Saying("no answer within 10 s"),
    ),
    (Call::Status, Wrong::EndlessBody, "/is_sleeping", Well),
    (Call::Status, Wrong::Drip, "/is_sleeping", Well),
    (
        Call::Sleep,
        Wrong::EndlessBody,
        "/sleep",
        Saying("longer than 4.00 MiB"),
    ),
    (
        Call::Sleep,
        Wrong::Drip,
        "/sleep",
        Saying("did not end within 3 s"),
    ),
    (
        Call::Sleep,
        Wrong::RedirectElsewhere,
        "/sleep",
        Saying("redirects are not followed"),
    ),
    (
        Call::Router,
        Wrong::ManyWorkers(100_000),
        "/workers",
        Saying("no more than 1024"),
    ),
    (
        Call::Router,
        Wrong::Worker("file:///etc/passwd"),
        "/workers",
        Saying("names a worker"),
    ),
    (
        Call::Router,
        Wrong::EndlessBody,
        "/workers",
        Saying("longer than 4.00 MiB"),
    ),
    (
        Call::Router,
        Wrong::Wide,
        "/workers",
        Saying("can't be read"),
    ),
    (Call::Profile, Wrong::Wide, "/openapi.json", Well),
    (
        Call::Window,
        Wrong::EndlessEvents,
        ANSWER,
        Saying("did not end within 3 s"),
    ),
];

/// How it ended.
struct Ended {
    status: Option<ExitStatus>,
    wall: Duration,
    peak_kib: i64,
    said: String,
    answered: String,
}

fn command(call: Call, server: &Hostile, dir: &Path, made: &Made) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrace-remote"));
    let url = server.url();
    match call {
        Call::Push => command.arg("push").arg(&made.dir).arg("s3://bucket/prefix"),
        Call::Read => command.args(["read", "s3://bucket/prefix"]),
        Call::Load => {
            let plan = dir.join("plan.jsonl");
            let condition = r#"{"v":1,"condition":0,"name":"a","input_tokens":8,"output_tokens":4,"concurrency":1,"prefix_reuse":0,"requests":1,"seed":0}"#;
            std::fs::write(&plan, condition).unwrap();
            command
                .args(["load", "run"])
                .arg(plan)
                .args(["--url", &url]);
            command.args(["--timeout=3", "--no-recording", "--no-bar", "--cool-down=0"]);
            command.arg("--output").arg(dir.join("out"))
        }
        Call::Status => command.args(["engine", "status", "--url", &url]),
        Call::Sleep => command.args([
            "engine",
            "sleep",
            "--timeout=3",
            "--no-recording",
            "--url",
            &url,
        ]),
        Call::Router => command.args(["engine", "status", "--router", &url]),
        Call::Profile => command.args(["engine", "profile", "status", "--url", &url]),
        Call::Window => command.args([
            "engine",
            "profile",
            "run",
            "--timeout=3",
            "--no-recording",
            "--requests=1",
            "--url",
            &url,
        ]),
    };
    for (name, _) in std::env::vars() {
        if name.starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command
        .env("AWS_ENDPOINT_URL", url)
        .env("AWS_ACCESS_KEY_ID", "AKIDTEST")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("AWS_REGION", "us-east-1")
        .env("MEMTRACE_REMOTE_TIMEOUT", "3")
        .current_dir(dir);
    command
}

/// A program that runs, of which the answers and what it says go to files.
struct Running {
    child: Child,
    questions: Option<ChildStdin>,
    said: PathBuf,
    answered: PathBuf,
}

impl Running {
    fn start(mut command: Command, dir: &Path) -> Self {
        let (said, answered) = (dir.join("said"), dir.join("answered"));
        command
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&answered).unwrap())
            .stderr(std::fs::File::create(&said).unwrap());
        let mut child = command.spawn().unwrap();
        let questions = child.stdin.take();
        Self {
            child,
            questions,
            said,
            answered,
        }
    }

    /// Asks what `read` is asked of a recording.
    fn ask(&mut self) {
        let asked = "{\"files\":{\"below\":\"\"}}\n\
            {\"bytes\":{\"file\":\"run.json\",\"ranges\":[{\"start\":0,\"end\":2}]}}\n";
        let questions = self.questions.as_mut().unwrap();
        questions.write_all(asked.as_bytes()).unwrap();
    }

    /// Waits until it has ended, and ends it when that takes too long.
    fn ended(mut self) -> Ended {
        let begin = Instant::now();
        let pid = self.child.id().cast_signed();
        let mut has_been_ended = false;
        loop {
            let mut status = 0;
            // SAFETY: numbers may be anything, and both pointers are to what is ours.
            let (found, usage) = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                let found = libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage);
                (found, usage)
            };
            if found == pid {
                return Ended {
                    status: (!has_been_ended).then(|| ExitStatus::from_raw(status)),
                    wall: begin.elapsed(),
                    peak_kib: usage.ru_maxrss,
                    said: text(&self.said),
                    answered: text(&self.answered),
                };
            }
            // It answers for as long as somebody may ask.
            if text(&self.answered)
                .lines()
                .filter(|line| line.starts_with("{\""))
                .count()
                == 2
            {
                self.questions = None;
            }
            if !has_been_ended && begin.elapsed() > PATIENCE {
                self.child.kill().unwrap();
                has_been_ended = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned()
}

/// Runs it; where `terminated` says so it gets SIGTERM after so long, and the time counts from there.
fn run(call: Call, server: &Hostile, dir: &Path, terminated: Option<Duration>) -> Ended {
    let parts = [
        ("mem/part-00001.parquet", 1_000),
        ("oom/part-00001.parquet", 10),
    ];
    let made = Made::closed(&parts);
    let before = made.files();
    let mut running = Running::start(command(call, server, dir, &made), dir);
    match call {
        Call::Read => running.ask(),
        _ => running.questions = None,
    }
    if let Some(after) = terminated {
        std::thread::sleep(after);
        let pid = rustix::process::Pid::from_child(&running.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
    let ended = running.ended();
    assert_eq!(made.files(), before, "the source changed");
    ended
}

/// What went otherwise than it must.
fn tried(&(call, wrong, at, ends): &Case) -> (String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let server = Hostile::start(wrong, at);
    let ended = run(call, &server, dir.path(), None);
    let mut wrongs = Vec::new();
    let code = ended.status.and_then(|status| status.code());
    let refused = ended.answered.contains("refused");
    let failed = match call {
        Call::Read => refused,
        _ => code != Some(0),
    };
    if code.is_none() {
        wrongs.push(format!("it did not end by itself: {:?}", ended.status));
    }
    if ended.wall > Duration::from_secs(call.seconds()) {
        wrongs.push("it took too long".to_owned());
    }
    if ended.peak_kib > MEMORY_MAX_KIB {
        wrongs.push("it held too much".to_owned());
    }
    let reported = match call {
        Call::Read => &ended.answered,
        _ => &ended.said,
    };
    match ends {
        Well if failed => wrongs.push("it failed".to_owned()),
        Well => {}
        Saying(_) if !failed => wrongs.push("it did not fail".to_owned()),
        Saying(words) if !reported.contains(words) => wrongs.push(format!("no word of {words:?}")),
        Saying(_) if !reported.contains("127.0.0.1") => {
            wrongs.push("no word of the server".to_owned())
        }
        Saying(_) => {}
    }
    if server.was_followed() {
        wrongs.push("a redirect was followed".to_owned());
    }
    let allowed = ["out", "plan.jsonl", "said", "answered"];
    let others = files(dir.path()).into_keys();
    let others = others.filter(|path| !allowed.iter().any(|name| path.starts_with(name)));
    for path in others {
        wrongs.push(format!("{path} was written"));
    }
    let shown: String = reported.chars().take(400).collect();
    let line = format!(
        "{call:?} {wrong:?} {at}: code {code:?} in {:.1} s, {} MiB, {} requests: {shown}",
        ended.wall.as_secs_f64(),
        ended.peak_kib >> 10,
        server.requests(),
    );
    (line, wrongs)
}

/// Tries all of them, many at once, and fails where one went otherwise.
fn try_all<C: Sync>(cases: &[C], tried: impl Fn(&C) -> (String, Vec<String>) + Sync) {
    let next = AtomicUsize::new(0);
    let failed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..24 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (line, wrongs) = tried(case);
                    println!("{line}");
                    for wrong in &wrongs {
                        println!("    {wrong}");
                    }
                    failed.fetch_add(usize::from(!wrongs.is_empty()), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    assert_eq!(failed, 0, "of {} cases", cases.len());
}

#[test]
fn whatever_a_server_does_it_ends_in_time_within_its_memory_and_says_what_was_wrong() {
    try_all(CASES, tried);
}

#[test]
fn sigterm_ends_it_within_a_second_whatever_it_waits_for() {
    let cases = [
        (Call::Push, Wrong::Silent, LIST),
        (Call::Push, Wrong::Drip, LIST),
        (Call::Push, Wrong::EmptyPages, LIST),
        (Call::Push, Wrong::Silent, PUT),
        (Call::Read, Wrong::Silent, LIST),
        (Call::Load, Wrong::Silent, MODELS),
        (Call::Load, Wrong::Drip, COUNT),
        (Call::Load, Wrong::EndlessEvents, ANSWER),
        (Call::Status, Wrong::Silent, "/health"),
        (Call::Sleep, Wrong::Silent, "/sleep"),
        (Call::Router, Wrong::Silent, "/workers"),
        (Call::Window, Wrong::Silent, "/stop_profile"),
    ];
    try_all(&cases, |&(call, wrong, at)| {
        let dir = tempfile::tempdir().unwrap();
        let server = Hostile::start(wrong, at);
        let ended = run(call, &server, dir.path(), Some(Duration::from_secs(1)));
        let mut wrongs = Vec::new();
        // A second, and what a busy machine takes.
        if ended.wall > Duration::from_millis(1_500) {
            wrongs.push("it took too long".to_owned());
        }
        let is_reported = ended.status.is_some_and(|status| {
            status.code() == Some(130) || status.signal() == Some(libc::SIGTERM)
        });
        if !is_reported {
            wrongs.push(format!("it ended with {:?}", ended.status));
        }
        let seconds = ended.wall.as_secs_f64();
        (
            format!("{call:?} {wrong:?} {at}: {seconds:.1} s: {}", ended.said),
            wrongs,
        )
    });
}

#[test]
fn a_server_that_takes_more_memory_than_there_is_ends_it_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let server = Hostile::start(Wrong::EndlessBody, LIST);
    let made = Made::closed(&[]);
    let asked = command(Call::Push, &server, dir.path(), &made);
    let mut command = Command::new("sh");
    let words = asked
        .get_args()
        .map(|word| word.to_string_lossy().into_owned());
    command
        .args(["-c", "ulimit -d 6144 && exec \"$0\" \"$@\""])
        .arg(asked.get_program())
        .args(words)
        .envs(
            asked
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(dir.path());
    let ended = Running::start(command, dir.path()).ended();
    assert_eq!(
        ended.status.and_then(|status| status.code()),
        Some(1),
        "{}",
        ended.said
    );
    assert!(
        ended.said.contains("would hold more than the 6.00 MiB"),
        "{}",
        ended.said
    );
}

#[test]
fn a_log_without_end_is_read_no_further_than_its_bound() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrace-remote"));
    command.args(["engine", "status", "--from-log", "/dev/zero"]);
    let ended = Running::start(command, dir.path()).ended();
    assert_eq!(
        ended.status.and_then(|status| status.code()),
        Some(1),
        "{}",
        ended.said
    );
    assert!(ended.said.contains("/dev/zero"), "{}", ended.said);
    assert!(
        ended.said.contains("longer than 1.00 GiB"),
        "{}",
        ended.said
    );
    assert!(ended.peak_kib <= MEMORY_MAX_KIB, "{} KiB", ended.peak_kib);
}
