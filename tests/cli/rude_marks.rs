//! Datagrams and questions as nobody should send them. The test records itself, so that it is
//! a known sender.

use super::*;
use memtrace_model::{DiagKind, DiagRow, MarkRow};
use memtrace_store::read_run_info;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixStream};

/// A recording of this process, and where its socket is.
fn of_ourselves() -> Result<(Recorder, String)> {
    let pid = std::process::id().to_string();
    let recorder = Recorder::start(&["--quiet", "--backend", "procfs", "-p", &pid])?;
    let socket = read_run_info(&recorder.path())?.mark_socket;
    Ok((recorder, socket.context("marks are not received")?))
}

fn sender(path: &str) -> Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    // What a sender may have on its way; for a mark of a megabyte only root gets enough.
    let room: libc::c_int = 4 << 20;
    let length = libc::socklen_t::try_from(size_of_val(&room))?;
    // SAFETY: the pointer and the length are those of a live integer.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const room).cast(),
            length,
        )
    };
    socket.connect(path)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

fn message(name: &str, more: &str) -> Vec<u8> {
    format!(r#"{{"v":1,"kind":"instant","name":"{name}","boot_ns":1{more}}}"#).into_bytes()
}

#[test]
fn what_is_no_mark_is_counted_and_takes_no_other_mark_with_it() -> Result<()> {
    let (recorder, path) = of_ourselves()?;
    let socket = sender(&path)?;
    let huge = message(&"x".repeat(1 << 20), "");
    let long = message(&"x".repeat(100_000), "");
    let mut refused = 0;
    let wrong: [&[u8]; 9] = [
        b"",
        b"load_model",
        b"\xff\xfe\xfd",
        b"{\"v\":1,\"kind\":\"instant\",\"name\":\"\xff\",\"boot_ns\":1}",
        br#"{"v":2,"kind":"instant","name":"a","boot_ns":1}"#,
        br#"{"v":1,"kind":"ask","name":"a","boot_ns":1}"#,
        br#"{"v":1,"kind":"instant","name":"","boot_ns":1}"#,
        &long,
        &huge,
    ];
    for bytes in wrong {
        match socket.send(bytes) {
            Ok(_) => refused += 1,
            // Without privileges the kernel refuses a megabyte before anybody else can.
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE)),
        }
    }
    // Neither a pid nor a time that can't be make a mark somebody else's.
    socket.send(&message("forged", r#","pid":1,"tgid":1,"upid":1,"uid":0"#))?;
    let name = "\\u001b[2J\\u001b]0;title\\u0007\\r\\n\\u202e";
    socket.send(&message(name, r#","attrs":{"a\u001b[31m":"b\u009b31m"}"#))?;
    let end = br#"{"v":1,"kind":"end","name":"never_began","boot_ns":1,"span":5}"#;
    socket.send(end)?;
    let begin = br#"{"v":1,"kind":"begin","name":"never_ends","boot_ns":1,"span":6}"#;
    socket.send(begin)?;
    std::thread::sleep(Duration::from_millis(300));
    let recorded = recorder.stop()?;

    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let undecoded: i64 = diags
        .iter()
        .filter(|row| row.kind == Some(DiagKind::UndecodedEvents))
        .filter_map(|row| row.count)
        .sum();
    assert_eq!(undecoded, refused, "{diags:#?}");
    let own = process(&recorded, std::process::id())?;
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let mine: Vec<&MarkRow> = marks
        .iter()
        .filter(|row| row.tgid == Some(own.tgid))
        .collect();
    assert_eq!(mine.len(), 4, "{marks:#?}");
    for mark in mine {
        assert_eq!(mark.upid, Some(own.upid), "{mark:?}");
        assert!(mark.boot_ns > own.start_boot_ns, "{mark:?}");
    }

    let place = recorded.path();
    let place = place.to_str().context("text")?;
    let formats = ["text", "md", "csv", "json"];
    let mut views: Vec<Vec<&str>> = formats.iter().map(|format| vec!["-f", *format]).collect();
    views.push(vec!["--phases"]);
    views.push(vec!["--style", "startup"]);
    for view in views {
        let output = memtrace([&["report", place], view.as_slice()].concat())?;
        assert!(output.status.success(), "{view:?}: {}", words(&output));
        // A line of CSV ends so.
        let text =
            String::from_utf8([output.stdout, output.stderr].concat())?.replace("\r\n", "\n");
        let raw = text.find(|c: char| (c.is_control() && c != '\n') || c == '\u{202e}');
        assert_eq!(raw.map(|at| &text[at..]), None, "{view:?}");
    }
    Ok(())
}

#[test]
fn who_asks_nothing_that_is_known_finds_the_door_closed_and_keeps_nobody_waiting() -> Result<()> {
    let (recorder, path) = of_ourselves()?;
    let connect = || -> Result<UnixStream> {
        let stream = UnixStream::connect(format!("{path}.ask"))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    let silent: Vec<UnixStream> = (0..5).map(|_| connect()).collect::<Result<_>>()?;
    let rude: [&[u8]; 4] = [b"\xff", b"GET / HTTP/1.1\r\n\r\n", b"{}", &[b'{'; 100_000]];
    for question in rude {
        let mut stream = connect()?;
        // It may be closed before all is sent.
        let _ = stream.write_all(question);
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => assert_eq!(answer, b""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    let mut stream = connect()?;
    stream.write_all(b"{\"v\":1,\"ask\":\"descendants_peak\",\"span\":1}\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert_eq!(
        answer,
        "{\"v\":1,\"reason\":\"the start of the section is unknown\"}\n"
    );
    drop(silent);
    recorder.stop()?;
    for left in [path.clone(), format!("{path}.ask")] {
        assert!(
            !std::path::Path::new(&left).exists(),
            "{left} is left behind"
        );
    }
    Ok(())
}

#[test]
fn what_a_program_says_that_it_held_is_no_more_than_the_kernel_bears_out() -> Result<()> {
    let (recorder, path) = of_ourselves()?;
    let socket = sender(&path)?;
    let forged: [&[u8]; 3] = [
        br#"{"v":1,"kind":"peak","name":"a","boot_ns":1,"attrs":{"hiwater_bytes":4611686018427387904}}"#,
        br#"{"v":1,"kind":"instant","name":"a","boot_ns":1,"attrs":{"rss_bytes":1152921504606846976}}"#,
        br#"{"v":1,"kind":"instant","name":"a","boot_ns":1,"dropped":18446744073709551615}"#,
    ];
    for bytes in forged {
        socket.send(bytes)?;
    }
    std::thread::sleep(Duration::from_millis(300));
    let recorded = recorder.stop()?;
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let counted = |kind| -> i64 {
        let rows = diags.iter().filter(|row| row.kind == Some(kind));
        rows.filter_map(|row| row.count).sum()
    };
    assert_eq!(counted(DiagKind::RefusedClaims), 3, "{diags:#?}");
    assert_eq!(counted(DiagKind::LostEvents), 0, "{diags:#?}");
    let own = process(&recorded, std::process::id())?;
    assert!(
        own.peak_rss_bytes.is_some_and(|peak| peak.0 < 1 << 40),
        "{own:?}"
    );
    let place = recorded.path();
    let output = memtrace(["report".as_ref(), place.as_os_str()])?;
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains("PiB") && !text.contains("EiB"), "{text}");
    assert!(text.contains("self-reported figures"), "{text}");
    Ok(())
}

#[test]
fn marks_of_the_largest_size_as_fast_as_they_come_leave_the_recorder_under_its_ceiling()
-> Result<()> {
    use memtrace_model::{RECORDER_BYTES_MAX, SelfCostRow};
    let (recorder, path) = of_ourselves()?;
    let until = std::time::Instant::now() + Duration::from_secs(2);
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let path = path.clone();
            std::thread::spawn(move || -> Result<(i64, i64)> {
                let socket = sender(&path)?;
                socket.set_nonblocking(true)?;
                let large = format!(r#","attrs":{{"x":"{}"}}"#, "y".repeat(32_000));
                let bytes = message("large", &large);
                let (mut sent, mut refused) = (0, 0);
                while std::time::Instant::now() < until {
                    match socket.send(&bytes) {
                        Ok(_) => sent += 1,
                        Err(_) => refused += 1,
                    }
                }
                Ok((sent, refused))
            })
        })
        .collect();
    let mut sent = 0;
    for sender in senders {
        sent += sender.join().map_err(|_| anyhow::anyhow!("a sender"))??.0;
    }
    let recorded = recorder.stop()?;
    let marks: Vec<MarkRow> = recorded.recording.rows()?;
    let written = i64::try_from(marks.iter().filter(|row| row.name == "large").count())?;
    let diags: Vec<DiagRow> = recorded.recording.rows()?;
    let lost: i64 = diags
        .iter()
        .filter(|row| row.kind == Some(DiagKind::LostEvents))
        .filter_map(|row| row.count)
        .sum();
    assert_eq!(written + lost, sent, "each is there or counted");
    let costs: Vec<SelfCostRow> = recorded.recording.rows()?;
    let peak = costs.iter().filter_map(|row| row.peak_rss_bytes).max();
    assert!(
        peak.is_some_and(|peak| peak < RECORDER_BYTES_MAX),
        "{peak:?}"
    );
    println!("{sent} sent, {written} written, {lost} counted, peak {peak:?}");
    Ok(())
}
