//! What the first process of a machine has to do: file systems, and the end.

use anyhow::{Context, Result, bail};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// The serial line that reports go to; the console has the first.
const SERIAL: &str = "/dev/ttyS1";

/// The machine's disk, with an empty ext4: by its name one or the other.
const DISKS: &[&str] = &["/dev/nvme0n1", "/dev/sda"];
/// The kernel looks for disks while this runs already.
const DISK_PATIENCE: Duration = Duration::from_secs(30);

/// What is mounted: type, place.
const MOUNTS: &[(&str, &str)] = &[
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/dev/shm"),
    ("tracefs", "/sys/kernel/tracing"),
    ("cgroup2", "/sys/fs/cgroup"),
];

/// Makes the machine one that memtrace and its tests can run on, and opens the serial
/// line.
pub(crate) fn set_up() -> Result<File> {
    for (kind, place) in MOUNTS {
        mount(kind, kind, place)?;
    }
    // What lies in a tmpfs is shared memory, and what lies in a ramfs can't be dropped.
    mount(disk()?, "ext4", "/tmp")?;
    let control = "/sys/fs/cgroup/cgroup.subtree_control";
    std::fs::write(control, "+memory").with_context(|| format!("failed to write {control}"))?;
    let serial = File::options()
        .write(true)
        .open(SERIAL)
        .with_context(|| format!("failed to open {SERIAL}"))?;
    make_raw(&serial)?;
    Ok(serial)
}

fn disk() -> Result<&'static str> {
    let start = Instant::now();
    while start.elapsed() < DISK_PATIENCE {
        if let Some(disk) = DISKS.iter().find(|disk| Path::new(disk).exists()) {
            return Ok(disk);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("there is no disk: none of {}", DISKS.join(", "))
}

fn mount(source: &str, kind: &str, place: &str) -> Result<()> {
    std::fs::create_dir_all(place).with_context(|| format!("failed to make {place}"))?;
    let (source, kind, at) = (
        CString::new(source)?,
        CString::new(kind)?,
        CString::new(place)?,
    );
    // SAFETY: all three are live texts that end with NUL, and the kernel only reads them.
    let failed =
        unsafe { libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
    if failed != 0 {
        let error = std::io::Error::last_os_error();
        bail!("failed to mount {}: {error}", at.to_string_lossy());
    }
    Ok(())
}

/// Leaves every byte as it is, which a terminal does not.
fn make_raw(serial: &File) -> Result<()> {
    let fd = serial.as_raw_fd();
    // SAFETY: all zeroes is a valid termios, and the kernel fills it in.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and the settings are a live, writable value.
    let failed = unsafe {
        if libc::tcgetattr(fd, &raw mut settings) != 0 {
            true
        } else {
            libc::cfmakeraw(&raw mut settings);
            libc::tcsetattr(fd, libc::TCSANOW, &raw const settings) != 0
        }
    };
    if failed {
        bail!(
            "failed to set up {SERIAL}: {}",
            std::io::Error::last_os_error()
        );
    }
    Ok(())
}

/// Ends the machine, once all that was said has left.
pub(crate) fn switch_off() -> ! {
    if let Ok(serial) = File::options().write(true).open(SERIAL) {
        // SAFETY: the descriptor is open.
        unsafe { libc::tcdrain(serial.as_raw_fd()) };
    }
    // SAFETY: no memory is involved; nothing on this machine is worth keeping.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    // A machine without a switch: the emulator ends at a restart as well.
    // SAFETY: as above.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
    loop {
        // SAFETY: waits for a signal, and takes no pointers.
        unsafe { libc::pause() };
    }
}

/// Takes the end of any process that this one is the parent of, without waiting: a first
/// process inherits all orphans. Null when none has ended.
pub(crate) fn reap() -> Option<(u32, i32)> {
    let mut status = 0;
    // SAFETY: the status is a live, writable value.
    let pid = unsafe { libc::waitpid(-1, ptr::from_mut(&mut status), libc::WNOHANG) };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid != 0)?;
    Some((pid, status))
}
