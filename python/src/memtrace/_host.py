"""What the kernel says about this process's memory. None stands for unknown."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

try:
    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
except (AttributeError, OSError, ValueError):
    _PAGE_BYTES = 0


class HostMemory(NamedTuple):
    """Two figures, read at one time."""

    hiwater_bytes: int | None
    """VmHWM: the highest RSS of the address space since its mark was reset."""
    rss_bytes: int | None
    """VmRSS."""


def rss_bytes() -> int | None:
    """Resident memory of this process, the cheap way."""
    fields = _read("/proc/self/statm").split()
    try:
        return int(fields[1]) * _PAGE_BYTES
    except (IndexError, ValueError):
        return None


def memory() -> HostMemory:
    """The high-water mark and RSS of this process."""
    hiwater = rss = None
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(b"VmHWM:"):
            hiwater = _kib(line)
        elif line.startswith(b"VmRSS:"):
            rss = _kib(line)
            break
    return HostMemory(hiwater, rss)


def reset_hiwater() -> bool:
    """Lets the high-water mark start again at RSS. False where that is not allowed."""
    try:
        file = os.open("/proc/self/clear_refs", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.write(file, b"5")
    except OSError:
        return False
    finally:
        os.close(file)
    return True


def maxrss_bytes() -> int | None:
    """The highest RSS of this process's life, as getrusage tells it."""
    try:
        import resource
    except ImportError:
        return None
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum if sys.platform == "darwin" else maximum * 1024


def _kib(line: bytes) -> int | None:
    try:
        return int(line.split()[1]) * 1024
    except (IndexError, ValueError):
        return None


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(file, 16_384)
    except OSError:
        return b""
    finally:
        os.close(file)
