"""How a worker comes to its end: each cause is what the worker itself does, after it has said which
process it is. Where another process ends it, it waits."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import sys
import time
from pathlib import Path

PLACE = Path(os.environ["ENDS_PLACE"])
STEP = 8 << 20
WAIT_S = 60


def say(name: str, pid: int) -> None:
    """Says which process it is, in a file that is whole once it is there."""
    part = PLACE / f"{name}.{os.getpid()}"
    part.write_text(str(pid))
    part.rename(PLACE / name)


def asked(name: str) -> int:
    """Which process that is, once it has said so."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if (PLACE / name).exists():
            return int((PLACE / name).read_text())
        time.sleep(0.05)
    raise TimeoutError(f"{name} said nothing")


def end_by(cause: str) -> str:
    """What the worker does. Returns where it lives on."""
    if (PLACE / "victim").exists():
        # Started again, or asked again: this time it ends well.
        return "again"
    say("victim", os.getpid())
    time.sleep(0.5)
    if cause in ("stranger", "parent", "terminate", "timeout"):
        time.sleep(WAIT_S)
    elif cause == "segv":
        ctypes.string_at(0)
    elif cause == "abort":
        os.abort()
    elif cause == "memory_error":
        resource.setrlimit(resource.RLIMIT_AS, (mapped() + 4 * STEP, resource.RLIM_INFINITY))
        take(0)
    elif cause == "oom":
        (Path(os.environ["ENDS_GROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
        take(0.05)
    elif cause == "monitor":
        take(0.05, int(os.environ["ENDS_MOST"]))
    elif cause == "sigbus":
        fill(Path(os.environ["ENDS_TMPFS"]) / "segment")
    elif cause == "import_error":
        import no_such_module  # noqa: F401
    return "done"


def mapped() -> int:
    """Its address space."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def take(pause_s: float, most: int = 1 << 40) -> None:
    """Takes memory until that ends it, or it has the most that it takes."""
    held: list[bytearray] = []
    while len(held) * STEP < most:
        held.append(bytearray(os.urandom(4096) * (STEP // 4096)))
        time.sleep(pause_s)


def fill(path: Path) -> None:
    """Writes to a segment that is larger than its file system."""
    size = 64 << 20
    with open(path, "w+b") as file:
        file.truncate(size)
        with mmap.mmap(file.fileno(), size) as segment:
            for at in range(0, size, 4096):
                segment[at] = 1


if __name__ == "__main__":
    end_by(sys.argv[1])
