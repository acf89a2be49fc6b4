//! The stand-in itself: it exports what the driver does, and behaves as the driver was seen to on
//! an H200.

use super::Checkpoint;
use anyhow::{Context, Result, ensure};
use memtrace_tests::cuda::{FakeCuda, NAMES};
use memtrace_tests::workload;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Stdio;

const MIB: i64 = 1 << 20;

/// A library that stays loaded.
struct Loaded(*mut c_void);

impl Loaded {
    fn open(cuda: &FakeCuda) -> Result<Self> {
        let path = CString::new(cuda.path().display().to_string())?;
        // SAFETY: the text ends in NUL, and the library runs nothing when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        ensure!(!library.is_null(), "the library can't be loaded");
        Ok(Self(library))
    }

    fn symbol(&self, name: &str) -> Result<*mut c_void> {
        let text = CString::new(name)?;
        // SAFETY: the library stays loaded, and the text ends in NUL.
        let found = unsafe { libc::dlsym(self.0, text.as_ptr()) };
        ensure!(!found.is_null(), "the library has no {name}");
        Ok(found)
    }
}

#[test]
fn every_function_has_an_address_of_its_own_which_cu_get_proc_address_gives() -> Result<()> {
    let library = Loaded::open(&FakeCuda::new()?)?;
    let mut places = HashMap::new();
    for name in NAMES {
        let place = library.symbol(name)?;
        if let Some(other) = places.insert(place, *name) {
            anyhow::bail!("{name} and {other} are one function");
        }
    }
    ensure!(places.len() > 60, "only {} functions", places.len());
    type Get = extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_int) -> c_int;
    let get = library.symbol("cuGetProcAddress_v2")?;
    // SAFETY: it is a function with this signature in cuda.h.
    let get: Get = unsafe { std::mem::transmute(get) };
    let ask = |name: &str, version, flags| -> Result<Option<&str>> {
        let name = CString::new(name)?;
        let (mut place, mut status) = (std::ptr::null_mut(), -1);
        let code = get(
            name.as_ptr(),
            &raw mut place,
            version,
            flags,
            &raw mut status,
        );
        ensure!((code == 0) == (status == 0) && (code == 0) != place.is_null());
        Ok(places.get(&place).copied())
    };
    // Flags: 0 is the default, 1 the legacy stream, 2 one for each thread.
    for (name, version, flags, expected) in [
        ("cuMemAlloc", 13_000, 0, Some("cuMemAlloc_v2")),
        ("cuMemAlloc", 13_000, 2, Some("cuMemAlloc_v2")),
        ("cuMemAllocAsync", 13_000, 1, Some("cuMemAllocAsync")),
        ("cuMemAllocAsync", 13_000, 2, Some("cuMemAllocAsync_ptsz")),
        ("cuCtxCreate", 13_000, 0, Some("cuCtxCreate_v4")),
        ("cuCtxCreate", 12_000, 0, Some("cuCtxCreate_v3")),
        ("cuMemCreate", 13_000, 0, Some("cuMemCreate")),
        ("cuMemNothing", 13_000, 0, None),
    ] {
        assert_eq!(ask(name, version, flags)?, expected, "{name} {flags}");
    }
    Ok(())
}

/// What a process holds at each checkpoint, when nobody records it.
fn checkpoints(scenario: &str) -> Result<Vec<Checkpoint>> {
    let cuda = FakeCuda::new()?;
    let words = ["cuda", "--settle-ms", "0", "--scenario", scenario];
    let mut command = workload::command(&words)?;
    let output = command.arg("--library").arg(cuda.path()).output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Checkpoint::all(&output.stdout)
}

fn charged(checkpoints: &[Checkpoint], at: &str) -> Result<i64> {
    let named = checkpoints.iter().find(|one| one.at == at);
    let named = named.with_context(|| format!("no checkpoint {at}"))?;
    Ok(named.held.devices[0].charged_bytes / MIB)
}

#[test]
fn memory_is_charged_as_it_was_seen_on_an_h200() -> Result<()> {
    let kinds = checkpoints("kinds")?;
    // A context, 1000 × 4 KiB, 11 × 1 MiB, 10 × 3 MiB, 101 MiB and a byte.
    let direct = charged(&kinds, "direct")?;
    assert_eq!(direct, 518 + 4 + 12 + 40 + 102);
    assert_eq!(charged(&kinds, "pitch")? - direct, 64);
    assert_eq!(charged(&kinds, "managed")? - direct, 64);
    assert_eq!(charged(&kinds, "arrays")? - direct, 64 + 64 + 128);
    let pools = checkpoints("pools")?;
    // 400 MiB in pieces of 32 MiB, then 100 MiB.
    assert_eq!(charged(&pools, "own_pool")?, 518 + 416);
    assert_eq!(charged(&pools, "trimmed")?, 518 + 128);
    let share = checkpoints("share")?;
    // Who imports is charged nothing, also where that is who created it.
    assert_eq!(charged(&share, "exported")?, 518 + 64);
    assert_eq!(charged(&share, "mapped")?, 518);
    assert_eq!(charged(&share, "own_import")?, 518 + 64);
    assert_eq!(charged(&share, "own_import_alone")?, 518);
    Ok(())
}

#[test]
fn every_scenario_ends_as_it_should_when_nobody_records_it() -> Result<()> {
    let cuda = FakeCuda::new()?;
    let scenarios: [&[&str]; 18] = [
        &["torch"],
        &["expandable"],
        &["sleep"],
        &["nccl"],
        &["host"],
        &["kinds"],
        &["refused", "--capacity", "4G"],
        &["pools"],
        &["devices", "--devices", "2"],
        &["contexts"],
        &["reuse"],
        &["storm"],
        &["many"],
        &["ipc"],
        &["share"],
        &["fork_server"],
        &["hang"],
        &["killed"],
    ];
    // They sleep most of the time: all at once.
    let started: Result<Vec<_>> = scenarios
        .iter()
        .map(|words| {
            let words = [&["cuda", "--scenario"], *words].concat();
            let mut command = workload::command(&words)?;
            command.arg("--library").arg(cuda.path());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            Ok((words, command.spawn()?))
        })
        .collect();
    for (words, child) in started? {
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{words:?}: {said}");
        ensure!(!Checkpoint::all(&output.stdout)?.is_empty(), "{words:?}");
    }
    Ok(())
}
