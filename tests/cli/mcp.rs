//! `memtrace mcp`, as the program of an assistant uses it.

use super::*;
use memtrace_model::tables::{MemRow, MemSource};
use memtrace_model::{BootNs, Bytes, ClockReading, RunState, Upid, WallNs};
use memtrace_store::{Writer, read_run_info};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout};

/// What the server may take of memory, and each process that it starts.
const MEMORY_KIB: u32 = 128 << 10;

/// A client, and the server that it started.
struct Client {
    server: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    asked: i64,
}

impl Client {
    fn start(dir: &Path) -> Result<Self> {
        let limited = format!("ulimit -d {MEMORY_KIB} && exec \"$@\"");
        let mut server = shell(&limited)
            .arg("sh")
            .arg(program::memtrace()?)
            .arg("mcp")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let from = server.stdout.take().context("a pipe")?;
        Ok(Self {
            to: server.stdin.take(),
            from: BufReader::new(from),
            server,
            asked: 0,
        })
    }

    fn write(&mut self, line: &[u8]) -> Result<()> {
        let to = self.to.as_mut().context("a pipe")?;
        to.write_all(line)?;
        Ok(to.write_all(b"\n")?)
    }

    fn send(&mut self, method: &str, params: &Value) -> Result<i64> {
        self.asked += 1;
        let id = self.asked;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.write(message.to_string().as_bytes())?;
        Ok(id)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<i64> {
        let params = json!({"name": tool, "arguments": arguments});
        self.send("tools/call", &params)
    }

    fn answer(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("no message: {line:?}"))
    }

    /// What a tool answers, and whether that is an error.
    fn said(&mut self, tool: &str, arguments: &Value) -> Result<(Vec<String>, bool)> {
        let id = self.call(tool, arguments)?;
        let answer = self.answer()?;
        assert_eq!(answer["id"], id, "{answer}");
        let content = answer["result"]["content"].as_array();
        let content = content.with_context(|| format!("no result: {answer}"))?;
        let texts = content.iter().filter_map(|one| one["text"].as_str());
        let is_error = answer["result"]["isError"] == true;
        Ok((texts.map(str::to_owned).collect(), is_error))
    }

    /// Closes its input, and waits.
    fn end(mut self) -> Result<()> {
        self.to = None;
        let status = self.server.wait()?;
        assert!(status.success(), "{status}");
        Ok(())
    }
}

fn record(dir: &Path, script: &str) -> Result<()> {
    let place = dir.to_str().context("a path that is text")?;
    let words = [
        "record",
        "-q",
        "--backend",
        "procfs",
        "-o",
        place,
        "--",
        "sh",
        "-c",
        script,
    ];
    memtrace(words)?;
    Ok(())
}

/// What a command of memtrace writes.
fn written(line: &[&str]) -> Result<String> {
    let output = Command::new(program::memtrace()?)
        .args(line)
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output()?;
    assert!(output.status.success(), "{}", words(&output));
    Ok(String::from_utf8(output.stdout)?)
}

/// Every file below a directory, and what it has.
fn files(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            false => drop(found.insert(path.display().to_string(), std::fs::read(&path)?)),
        }
    }
    Ok(found)
}

/// What tools are asked of two recordings, and what the commands say.
fn questions(
    root: &str,
    first: &str,
    second: &str,
) -> Result<Vec<(&'static str, Value, Vec<String>)>> {
    let report = |words: &[&str]| written(&[&["report", "--top", "3"], words, &[first]].concat());
    let window = ["--from", "+0.1s"];
    let section = |name| report(&["--section", name]);
    Ok(vec![
        (
            "list_recordings",
            json!({}),
            vec![written(&["list", root])?],
        ),
        (
            "what_happened",
            json!({"recording": "first", "rows": 3}),
            vec![report(&[])?],
        ),
        (
            "what_happened",
            json!({"recording": first, "section": "endings", "rows": 3}),
            vec![section("endings")?],
        ),
        (
            "who_held_memory",
            json!({"recording": "first", "at": "peak", "rows": 3}),
            vec![report(&["--at", "peak"])?],
        ),
        (
            "what_grew",
            json!({"recording": "first", "rows": 3}),
            vec![
                section("growth")?,
                section("layout")?,
                section("allocations")?,
            ],
        ),
        (
            "what_grew",
            json!({"recording": "first", "rows": 3, "from": "+0.1s"}),
            vec![report(&window)?],
        ),
        (
            "about_process",
            json!({"recording": "first", "rows": 3, "process": "sleep"}),
            vec![report(&["--process", "sleep"])?],
        ),
        (
            "compare_recordings",
            json!({"before": "first", "after": "second", "rows": 3}),
            vec![written(&["diff", "--top", "3", first, second])?],
        ),
    ])
}

#[test]
fn every_tool_answers_in_the_words_of_the_command_that_it_stands_for_and_writes_nothing()
-> Result<()> {
    let dir = tempfile::tempdir()?;
    let root = dir.path().canonicalize()?;
    let [first, second] = ["first", "second"].map(|name| root.join(name));
    record(&first, "sleep 0.3")?;
    record(&second, "sleep 0.3; exit 3")?;
    let before = files(&root)?;
    let [root_text, first, second] =
        [&root, &first, &second].map(|path| path.to_str().unwrap_or_default());
    let mut client = Client::start(&root)?;
    let initialize = json!({"protocolVersion": "2025-06-18", "capabilities": {}});
    client.send("initialize", &initialize)?;
    let agreed = client.answer()?;
    assert_eq!(
        agreed["result"]["protocolVersion"], "2025-06-18",
        "{agreed}"
    );
    for (tool, arguments, expected) in questions(root_text, first, second)? {
        let said = client.said(tool, &arguments)?;
        assert_eq!(said, (expected, false), "{tool} {arguments}");
    }
    // The findings themselves, and what is said beside them.
    let as_json = json!({"section": "endings", "rows": 3, "format": "json"});
    let (said, is_error) = client.said("what_happened", &as_json)?;
    assert!(!is_error, "{said:?}");
    let newest = [
        "report",
        "-f",
        "json",
        "--top",
        "3",
        "--section",
        "endings",
        second,
    ];
    let expected: Value = serde_json::from_str(&written(&newest)?)?;
    assert_eq!(serde_json::from_str::<Value>(&said[0])?, expected);
    assert!(
        said[1].contains("second is the newest of 2 recordings"),
        "{said:?}"
    );
    client.end()?;
    assert!(before == files(&root)?, "something was written");
    Ok(())
}

#[test]
fn what_a_recording_lacks_is_said_with_every_answer() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let recording = dir.path().join("run");
    record(&recording, "sleep 0.2")?;
    std::fs::write(recording.join("mem/part-00001.parquet"), "no table")?;
    let mut client = Client::start(dir.path())?;
    let (said, is_error) = client.said("what_happened", &json!({}))?;
    assert!(!is_error, "{said:?}");
    let beside = said.last().context("a text")?;
    assert!(beside.contains("mem/part-00001.parquet"), "{said:?}");
    // What can't be answered says why, as the command does.
    for (arguments, why) in [
        (json!({"recording": "none"}), "No such file or directory"),
        (json!({"recording": "run/mem"}), "not a recording"),
        (json!({"recording": ".."}), "may not be read"),
        (json!({"recording": "s3://bucket/run"}), "may not be read"),
        (
            json!({"section": "--output=x"}),
            "has no section --output=x",
        ),
        (
            json!({"section": "hosts"}),
            "belongs to a run of many hosts",
        ),
    ] {
        let (said, is_error) = client.said("what_happened", &arguments)?;
        assert!(is_error && said.len() == 1, "{arguments}: {said:?}");
        assert!(said[0].contains(why), "{arguments}: {said:?}");
    }
    client.end()
}

#[test]
fn a_client_that_writes_nonsense_or_hangs_up_ends_nothing_but_itself() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut client = Client::start(dir.path())?;
    let long = vec![b'x'; 8 << 20];
    let deep = b"[".repeat(1 << 20);
    for nonsense in [
        &b"nonsense"[..],
        b"\xff\x00\xfe",
        &long,
        &deep,
        b"{}",
        b"[1]",
        b"null",
    ] {
        client.write(nonsense)?;
        let refused = client.answer()?;
        assert_eq!(refused["id"], Value::Null, "{refused}");
        let code = refused["error"]["code"].as_i64();
        assert!(matches!(code, Some(-32700 | -32600)), "{refused}");
    }
    let id = client.send("ping", &json!({}))?;
    let pong = json!({"jsonrpc": "2.0", "id": id, "result": {}});
    assert_eq!(client.answer()?, pong);
    client.end()?;
    // One that reads no answers any more.
    let Client {
        mut server,
        to,
        from,
        ..
    } = Client::start(dir.path())?;
    drop(from);
    let mut to = to.context("a pipe")?;
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    await_that("the server ends", || {
        let _ = to.write_all(ping.as_bytes());
        matches!(server.try_wait(), Ok(Some(_)))
    });
    assert_eq!(server.wait()?.code(), Some(0));
    Ok(())
}

/// A recording of many processes, with half a million rows.
fn write_large(dir: &Path, small: &Path) -> Result<()> {
    let mut info = read_run_info(small)?;
    info.state = RunState::Recording;
    let first = info.clocks[0];
    let at = |step: i64| {
        let later = step * 100_000_000;
        ClockReading {
            boot_ns: BootNs(first.boot_ns.0 + later),
            monotonic_ns: first.monotonic_ns + later,
            wall_ns: WallNs(first.wall_ns.0 + later),
        }
    };
    let known = memtrace_store::Recordings::default().open(small)?;
    let processes: Vec<ProcessRow> = known.rows()?;
    let pattern = processes.first().context("a process")?;
    let mut writer = Writer::create(dir, &info)?;
    let (count, steps) = (250, 2_000);
    for number in 1..=count {
        let row = ProcessRow {
            upid: Upid(number),
            parent_upid: None,
            comm: format!("worker-{number}"),
            cmdline: Some(format!("worker --rank {number}").into()),
            exit_boot_ns: None,
            ..pattern.clone()
        };
        writer.append(&row.into())?;
    }
    for step in 0..steps {
        let ClockReading {
            boot_ns, wall_ns, ..
        } = at(step);
        for number in 1..=count {
            let bytes = Bytes((10 << 20) + step * number * 4096);
            let row = MemRow {
                ts: wall_ns,
                boot_ns,
                upid: Upid(number),
                rss_bytes: Some(bytes),
                rss_anon_bytes: Some(bytes),
                source: Some(MemSource::Procfs),
                ..MemRow::default()
            };
            writer.append(&row.into())?;
        }
        writer.flush()?;
    }
    info.clocks = vec![first, at(steps)];
    writer.finish(info)?;
    Ok(())
}

#[test]
fn a_large_recording_takes_little_memory_and_a_call_can_be_taken_back() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let small = dir.path().join("small");
    record(&small, "sleep 0.2")?;
    write_large(&dir.path().join("large"), &small)?;
    let mut client = Client::start(dir.path())?;
    let large = json!({"recording": "large"});
    // One is under way and one waits when they are taken back.
    let ids = [
        client.call("what_happened", &large)?,
        client.call("what_grew", &large)?,
        client.call("list_recordings", &json!({}))?,
    ];
    for id in [ids[0], ids[2]] {
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                            "params": {"requestId": id}});
        client.write(cancel.to_string().as_bytes())?;
    }
    let ping = client.send("ping", &json!({}))?;
    assert_eq!(client.answer()?["id"], ping, "a ping waits for no tool");
    let grew = client.answer()?;
    assert_eq!(grew["id"], ids[1]);
    let text = grew["result"]["content"][0]["text"].to_string();
    assert!(text.contains("worker --rank 250"), "{text}");
    let all = json!({"recording": "large", "rows": 1_000, "section": "processes"});
    let (said, is_error) = client.said("what_happened", &all)?;
    assert!(!is_error && said[0].contains("249 ×"), "{said:?}");
    let whole = json!({"recording": "large", "rows": 1_000, "format": "json"});
    let (said, is_error) = client.said("what_happened", &whole)?;
    assert!(
        is_error && said[0].contains("ask for one section"),
        "{said:?}"
    );
    client.end()
}
