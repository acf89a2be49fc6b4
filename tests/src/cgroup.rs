//! A memory cgroup with a limit, on either version of the hierarchy.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a group is charged for, in bytes, every page once: anonymous and shared memory, and memory of the
/// kernel.
///
/// # Errors
/// When memory.stat can't be read, or lacks a line.
pub fn charged_bytes(dir: &Path) -> Result<[i64; 2]> {
    let text = std::fs::read_to_string(dir.join("memory.stat"))?;
    let line = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find_map(|(name, value)| (name == key).then(|| value.parse::<i64>().ok())?)
    };
    // v1 calls it rss, which is no RSS: mapped files are not in it.
    let anon = line("rss").or_else(|| line("anon"));
    let all = anon.zip(line("shmem")).map(|(anon, shmem)| anon + shmem);
    let all = all.with_context(|| format!("no such lines in memory.stat of {}", dir.display()))?;
    let kernel = match std::fs::read_to_string(dir.join("memory.kmem.usage_in_bytes")) {
        Ok(text) => text.trim().parse::<i64>().ok(),
        // v2; 5.18 has a sum.
        Err(_) => line("kernel").map(|kernel| kernel + line("sock").unwrap_or(0)),
    };
    Ok([all, kernel.unwrap_or(0)])
}

/// The directory of the memory cgroup that this process is in.
///
/// # Errors
/// When /proc does not tell it.
pub fn own_directory() -> Result<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup")?;
    let of = |is_it: fn(&str) -> bool| {
        let mut lines = text.lines().map(|line| line.splitn(3, ':'));
        lines.find_map(|mut parts| {
            let controllers = parts.nth(1)?;
            is_it(controllers).then(|| parts.next())?
        })
    };
    let v1 = of(|controllers| controllers.split(',').any(|name| name == "memory"));
    let (mount, path) = match v1 {
        Some(path) => ("/sys/fs/cgroup/memory", path),
        None => ("/sys/fs/cgroup", of(str::is_empty).context("no cgroup")?),
    };
    Ok(Path::new(mount).join(path.trim_start_matches('/')))
}

/// A group that exists as long as the value, and holds no process by then.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    members: &'static str,
}

impl MemoryGroup {
    /// Makes a group with a limit in bytes.
    ///
    /// # Errors
    /// When there is no memory controller, or this process may not make groups.
    pub fn new(name: &str, limit_bytes: u64) -> Result<Self> {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let v2 = Path::new("/sys/fs/cgroup");
        let (root, limit, members) = if v1.join("memory.limit_in_bytes").exists() {
            (v1, "memory.limit_in_bytes", "cgroup.procs")
        } else if v2.join("cgroup.controllers").exists() {
            (v2, "memory.max", "cgroup.procs")
        } else {
            bail!("there is no memory cgroup hierarchy below {}", v2.display());
        };
        let dir = root.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
        let group = Self { dir, members };
        let limit = group.dir.join(limit);
        std::fs::write(&limit, limit_bytes.to_string())
            .with_context(|| format!("failed to write {}", limit.display()))?;
        Ok(group)
    }

    /// Makes a group below, without a limit of its own.
    ///
    /// # Errors
    /// When this process may not make groups.
    pub fn below(&self, name: &str) -> Result<Self> {
        let control = self.dir.join("cgroup.subtree_control");
        if control.exists() {
            std::fs::write(&control, "+memory")
                .with_context(|| format!("failed to write {}", control.display()))?;
        }
        let dir = self.dir.join(name);
        std::fs::create_dir(&dir).with_context(|| format!("failed to make {}", dir.display()))?;
        Ok(Self {
            dir,
            members: self.members,
        })
    }

    /// The directory of the group.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the group is charged for anonymous, shared and kernel memory, in bytes: every page once.
    ///
    /// # Errors
    /// When memory.stat can't be read, or lacks a line.
    pub fn charged_bytes(&self) -> Result<i64> {
        Ok(charged_bytes(&self.dir)?.iter().sum())
    }

    /// The same command, but started inside the group.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.dir.join(self.members))
            .arg(command.get_program())
            .args(command.get_args());
        inside
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel takes a moment to let go of the last member.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
