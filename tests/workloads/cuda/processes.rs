//! Several processes: memory that goes from one to another, forks, and ends of all kinds.

use super::library::{Driver, IpcHandle, Stream};
use super::small::expect;
use super::{MIB, Setting};
use crate::sys::{self, Mapping};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The driver answers so in a fork of a process that uses it.
const NOT_INITIALIZED: i32 = 3;

/// A child that was forked before there was a context, and a pipe to it.
struct Child {
    pid: i32,
    to: PipeWriter,
}

impl Child {
    fn fork(body: impl FnOnce(PipeReader) -> io::Result<()>) -> io::Result<Self> {
        let (from, to) = io::pipe()?;
        let inherited = to.try_clone()?;
        let pid = sys::fork_child(move || {
            sys::die_with_parent()?;
            drop(inherited);
            body(from)
        })?;
        Ok(Self { pid, to })
    }
}

/// CUDA IPC: one process allocates, two others open; one closes, one is killed.
pub(crate) fn ipc(driver: &Driver, _: &Setting) -> io::Result<()> {
    let mut closing = Child::fork(|mut from| {
        let handle = received(&mut from)?;
        driver.begin(0)?;
        let opened = driver.ipc_open(handle)?;
        let again = driver.ipc_open(handle)?;
        driver.checkpoint("opened")?;
        driver.ipc_close(again)?;
        driver.checkpoint("closed_once")?;
        driver.ipc_close(opened)?;
        driver.checkpoint("closed")
    })?;
    let mut dying = Child::fork(|mut from| {
        let handle = received(&mut from)?;
        driver.begin(0)?;
        driver.ipc_open(handle)?;
        driver.checkpoint("opened")?;
        kill_self()
    })?;
    driver.begin(0)?;
    let shared = driver.alloc(256 * MIB)?;
    let handle = driver.ipc_handle(shared)?;
    driver.checkpoint("exported")?;
    for child in [&mut closing, &mut dying] {
        child.to.write_all(&handle.0)?;
        sys::wait(child.pid)?;
    }
    driver.checkpoint("children_ended")?;
    driver.free(shared)?;
    driver.checkpoint("freed")
}

fn received(from: &mut PipeReader) -> io::Result<IpcHandle> {
    let mut handle = IpcHandle([0; 64]);
    from.read_exact(&mut handle.0)?;
    Ok(handle)
}

fn kill_self() -> io::Result<()> {
    // SAFETY: takes numbers.
    sys::check(unsafe { libc::kill(libc::getpid(), libc::SIGKILL) })?;
    Err(io::Error::other("SIGKILL was not enough"))
}

/// Memory that is exported to another process, and imported by the process itself.
pub(crate) fn share(driver: &Driver, _: &Setting) -> io::Result<()> {
    const BYTES: usize = 64 * MIB;
    let parent = std::process::id();
    let mut child = Child::fork(move |mut from| {
        let mut number = [0; 4];
        from.read_exact(&mut number)?;
        let path = format!("/proc/{parent}/fd/{}", i32::from_le_bytes(number));
        let file = std::fs::File::open(path)?;
        driver.begin(0)?;
        let handle = driver.import(std::os::fd::AsRawFd::as_raw_fd(&file))?;
        driver.checkpoint("imported")?;
        let start = driver.reserve(BYTES)?;
        driver.map(0, start, BYTES, handle)?;
        driver.checkpoint("mapped")?;
        driver.release(handle)?;
        driver.checkpoint("released")?;
        driver.unmap(start, BYTES)?;
        driver.checkpoint("unmapped")
    })?;
    driver.begin(0)?;
    let handle = driver.create(0, BYTES)?;
    let fd = driver.export(handle)?;
    driver.checkpoint("exported")?;
    child.to.write_all(&fd.to_le_bytes())?;
    sys::wait_success(child.pid)?;
    let imported = driver.import(fd)?;
    let start = driver.reserve(BYTES)?;
    driver.map(0, start, BYTES, imported)?;
    driver.checkpoint("own_import")?;
    driver.release(handle)?;
    driver.checkpoint("own_import_alone")?;
    driver.unmap(start, BYTES)?;
    driver.release(imported)?;
    driver.checkpoint("freed")
}

/// A process that has the library and no context forks workers, one of which becomes another program.
pub(crate) fn fork_server(driver: &Driver, setting: &Setting) -> io::Result<()> {
    let worker = |bytes: usize| {
        move || {
            driver.begin(0)?;
            driver.alloc(bytes)?;
            driver.checkpoint("worker")
        }
    };
    let mut children = vec![
        sys::fork_child(worker(64 * MIB))?,
        sys::fork_child(worker(128 * MIB))?,
    ];
    children.push(sys::fork_child(|| {
        worker(256 * MIB)()?;
        let own = std::env::current_exe()?;
        let words = ["cuda", "--scenario", "after_exec", "--library"];
        Err(Command::new(own).args(words).arg(&setting.library).exec())
    })?);
    for child in children {
        sys::wait_success(child)?;
    }
    driver.begin(0)?;
    let held = driver.alloc(512 * MIB)?;
    let child = sys::fork_child(|| {
        expect(driver.init(), NOT_INITIALIZED)?;
        expect(driver.alloc(32 * MIB), NOT_INITIALIZED)?;
        expect(driver.free(held), NOT_INITIALIZED)?;
        driver.checkpoint("fork_of_a_context")
    })?;
    sys::wait_success(child)?;
    driver.checkpoint("server")?;
    driver.free(held)?;
    driver.checkpoint("freed")
}

/// The program that a worker of the fork server becomes.
pub(crate) fn after_exec(driver: &Driver, _: &Setting) -> io::Result<()> {
    driver.checkpoint("new_program")?;
    driver.begin(0)?;
    driver.alloc(16 * MIB)?;
    driver.checkpoint("new_memory")
}

/// Calls that never return: of a thread whose process goes on, and of a process that is killed.
pub(crate) fn hang(driver: &Driver, _: &Setting) -> io::Result<()> {
    const HANGING: usize = 48 * MIB;
    driver.hang(HANGING as u64)?;
    let child = sys::fork_child(|| {
        driver.begin(0)?;
        driver.alloc(16 * MIB)?;
        driver.checkpoint("before_the_call")?;
        driver.alloc(HANGING)?;
        Ok(())
    })?;
    let context = driver.begin(0)?;
    let first = driver.alloc(64 * MIB)?;
    // Time for the child's checkpoint and call.
    driver.checkpoint("first")?;
    sys::sleep_ns(600_000_000);
    // SAFETY: the child is not waited for yet, so the id is its own.
    sys::check(unsafe { libc::kill(child, libc::SIGKILL) })?;
    sys::wait(child)?;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            driver.set_current(context)?;
            driver.create(0, HANGING)
        });
        sys::sleep_ns(50_000_000);
        let second = driver.alloc(32 * MIB)?;
        driver.checkpoint("beside_a_call")?;
        driver.free_all([first, second])?;
        driver.checkpoint("freed")?;
        sys::exit(0)
    })
}

/// Something of every kind that is never given back, in a process that is killed.
pub(crate) fn killed(driver: &Driver, _: &Setting) -> io::Result<()> {
    let child = sys::fork_child(|| {
        driver.begin(0)?;
        driver.alloc(512 * MIB)?;
        driver.create(0, 64 * MIB)?;
        driver.alloc_managed(128 * MIB)?;
        driver.alloc_async(Stream::Legacy, 10 * MIB)?;
        driver.host_alloc(4 * MIB)?;
        let own = Mapping::anon(MIB)?;
        driver.register(own.start() as u64, MIB)?;
        driver.load_library()?;
        driver.instantiate_graph()?;
        driver.checkpoint("held")?;
        kill_self()
    })?;
    sys::wait(child)?;
    driver.begin(0)?;
    driver.checkpoint("parent")
}
