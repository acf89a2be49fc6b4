//! A program that asks its recorder what its descendants held in a section.

use crate::Workload;
use crate::args::Args;
use crate::marks::Marker;
use crate::sys::{self, Mapping};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) const WORKLOAD: Workload = Workload {
    name: "asks",
    help: "--bytes B --hold-ms M: a grandchild holds B in a section; what does the recorder say?",
    run,
};

const SPAN: i64 = 7;
/// An answer takes as long as the recorder's interval, and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(args: &Args) -> io::Result<()> {
    let bytes = args.size("bytes", 64 << 20)?;
    let hold_ns = args.number("hold-ms", 0)?.cast_signed() * 1_000_000;
    let mut marker = Marker::connect()?;
    marker.begin_section("section", SPAN, sys::boot_ns())?;
    let child = sys::fork_child(|| {
        let grandchild = sys::fork_child(|| hold(bytes, hold_ns))?;
        sys::wait_success(grandchild)?;
        // Only who measured it may know.
        sys::say(&format!("{{\"stranger\":{}}}", ask(SPAN)?))
    })?;
    sys::wait_success(child)?;
    marker.end_section("section", SPAN, sys::boot_ns())?;
    // What comes later is not of the section.
    let late = sys::fork_child(|| hold(2 * bytes, hold_ns))?;
    sys::wait_success(late)?;
    sys::say(&format!(
        "{{\"pid\":{},\"answer\":{},\"unknown\":{}}}",
        std::process::id(),
        ask(SPAN)?,
        ask(SPAN + 1)?
    ))
}

fn hold(bytes: usize, hold_ns: i64) -> io::Result<()> {
    let mapping = Mapping::anon(bytes)?;
    mapping.touch(bytes);
    sys::sleep_ns(hold_ns);
    Ok(())
}

/// The recorder's answer, one line of JSON; null where it closes the connection without one.
fn ask(span: i64) -> io::Result<String> {
    let path = std::env::var("MEMTRACE_SOCKET").map_err(io::Error::other)?;
    let mut stream = UnixStream::connect(format!("{path}.ask"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let question = format!("{{\"v\":1,\"ask\":\"descendants_peak\",\"span\":{span}}}\n");
    stream.write_all(question.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end() {
        "" => Ok("null".to_owned()),
        answer => Ok(answer.to_owned()),
    }
}
