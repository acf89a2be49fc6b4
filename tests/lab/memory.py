"""What /proc and the memory controller say at the moment they are asked."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


class Held(NamedTuple):
    """What a process held: RSS, and PSS, where each page is divided among those that map it."""

    rss_bytes: int
    pss_bytes: int
    hwm_bytes: int


def held(tgid: int) -> Held | None:
    """What a process holds; None when it is gone or has no memory."""
    try:
        with open(f"/proc/{tgid}/smaps_rollup") as file:
            rollup = fields(file.read())
        with open(f"/proc/{tgid}/status") as file:
            status = fields(file.read())
    except (OSError, ValueError):
        return None
    if "Rss" not in rollup or "VmHWM" not in status:
        return None
    return Held(rollup["Rss"], rollup["Pss"], status["VmHWM"])


def fields(text: str) -> dict[str, int]:
    """The lines `Name:  123 kB`, in bytes."""
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith(" kB"):
            found[name] = int(rest[:-3]) << 10
    return found


class Charged(NamedTuple):
    """What a memory cgroup is charged: anonymous and shared memory, and everything; and what is
    held beside that: the kernel's memory for it, and huge pages, which the machine alone counts."""

    held_bytes: int
    usage_bytes: int
    kernel_bytes: int
    file_bytes: int
    huge_bytes: int

    def all_bytes(self) -> int:
        """Everything but files that can be dropped."""
        return self.usage_bytes - self.file_bytes + self.huge_bytes


class Group:
    """A memory cgroup for one trial, on either version of the hierarchy.

    Raises OSError where there is none or the caller may not make one.
    """

    def __init__(self, name: str) -> None:
        self.is_v1 = (V1 / "memory.stat").exists()
        self.path = (V1 if self.is_v1 else V2) / f"memtrace-lab-{name}-{os.getpid()}"
        self.path.mkdir()
        if not (self.path / "memory.stat").exists():
            self.path.rmdir()
            raise OSError("the memory controller is not on in the root of the hierarchy")

    def enter(self, command: list[str]) -> list[str]:
        """The same command, started inside of the group."""
        procs = str(self.path / "cgroup.procs")
        return ["/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', procs, *command]

    def charged(self) -> Charged:
        """What it is charged now."""
        lines = (self.path / "memory.stat").read_text().splitlines()
        stat = {name: int(value) for name, value in map(str.split, lines)}
        with open("/proc/meminfo") as meminfo:
            pool = dict(line.split(":") for line in meminfo if line.startswith("Huge"))
        used = int(pool["HugePages_Total"]) - int(pool["HugePages_Free"])
        huge = used * int(pool["Hugepagesize"].split()[0]) << 10
        if self.is_v1:
            usage = int((self.path / "memory.usage_in_bytes").read_text())
            kernel = int((self.path / "memory.kmem.usage_in_bytes").read_text())
            held, shmem = stat["total_rss"], stat["total_shmem"]
            return Charged(held + shmem, usage, kernel, stat["total_cache"] - shmem, huge)
        usage = int((self.path / "memory.current").read_text())
        kernel = stat["kernel"] + stat["sock"]
        file = stat["file"] - stat["shmem"]
        return Charged(stat["anon"] + stat["shmem"], usage, kernel, file, huge)

    def members(self) -> list[int]:
        """The processes that are in it."""
        return [int(line) for line in (self.path / "cgroup.procs").read_text().split()]

    def end(self) -> None:
        """Kills what is left in it: what outlived its trial."""
        for tgid in self.members():
            with suppress(ProcessLookupError):
                os.kill(tgid, signal.SIGKILL)

    def remove(self) -> None:
        """Removes it once its last process is gone."""
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)
        raise OSError(f"{self.path} still has processes: {self.members()}")
