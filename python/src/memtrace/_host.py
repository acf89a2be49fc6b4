"""What the kernel says about this process's memory. None stands for unknown."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

try:
    _PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
except (AttributeError, OSError, ValueError):
    _PAGE_BYTES = 0


class HostMemory(NamedTuple):
    """Figures that are read at one time."""

    hiwater_bytes: int | None
    """VmHWM: the highest RSS of the address space since its mark was reset."""
    rss_bytes: int | None
    """VmRSS."""
    anon_bytes: int | None = None
    """RssAnon."""


RSS_ATTRIBUTE = "rss_bytes"
ANON_ATTRIBUTE = "rss_anon_bytes"
VM_SIZE_ATTRIBUTE = "vm_size_bytes"
"""By these names a mark tells what its process held."""


class Resident(NamedTuple):
    """What this process has in RAM, and how large its address space is."""

    rss_bytes: int
    """Resident memory in all."""
    anon_bytes: int
    """Of this, what is neither of a file nor shared."""
    vm_size_bytes: int
    """VmSize."""


# The process that opened statm, and its descriptor. The file is that process's for good, so
# a fork's child opens its own.
_statm: tuple[int, int] | None = None
_STATM = "/proc/self/statm"
_STATM_FIELDS = 7


def resident() -> Resident | None:
    """Resident memory of this process, the cheap way: one read of an open file.

    A program that becomes a daemon closes every descriptor it finds, and the number may
    be another file by now: what does not read like statm is left alone, and opened anew.
    """
    for _ in range(2):
        opened = _statm
        if opened is None or opened[0] != os.getpid():
            opened = _open_statm()
        if opened is None:
            return None
        try:
            fields = os.pread(opened[1], 256, 0).split()
            if len(fields) == _STATM_FIELDS:
                size, rss, shared = (int(field) * _PAGE_BYTES for field in fields[:3])
                return Resident(rss, max(rss - shared, 0), size)
        except (OSError, ValueError):
            pass
        _forget_statm(opened)
    return None


def _open_statm() -> tuple[int, int] | None:
    global _statm
    parents, _statm = _statm, None
    if parents is not None and _is_statm(parents[1]):
        os.close(parents[1])
    try:
        file = os.open(_STATM, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    opened = (os.getpid(), file)
    if _statm is None:
        _statm = opened
    else:
        # Another thread was faster.
        os.close(file)
    return _statm


def _is_statm(file: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{file}").endswith("/statm")
    except OSError:
        return False


def _forget_statm(opened: tuple[int, int]) -> None:
    global _statm
    if _statm is opened:
        _statm = None


def memory() -> HostMemory:
    """The high-water mark and RSS of this process, and how much of it is anonymous."""
    status = _read("/proc/self/status")
    return HostMemory(*(_figure(status, name) for name in _FIGURES))


# In their order in the file, each with what stands before it.
_FIGURES = (b"\nVmHWM:", b"\nVmRSS:", b"\nRssAnon:")


def anon_bytes() -> int | None:
    """The anonymous memory of this process, counted page by page: exact, and slow."""
    return _figure(_read("/proc/self/smaps_rollup"), b"\nAnonymous:")


def give_back_free() -> None:
    """Gives free memory of the C library's heap back to the system, where it can."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        import ctypes

        library = ctypes.CDLL(None)
    except (ImportError, OSError):
        # An interpreter built without, or one that is linked statically.
        return None
    trim: Callable[[int], int] | None = getattr(library, "malloc_trim", None)
    return trim


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


@functools.cache
def rss_error_bytes() -> int | None:
    """How far RSS and its mark can be from the truth; None where that is not known.

    Since Linux 6.2 each of the three counters is kept in parts by CPU, of up to
    max(32, 2 x CPUs) pages each (compute_batch_value in lib/percpu_counter.c). Before, it
    was kept by thread.
    """
    release = re.match(r"(\d+)\.(\d+)", os.uname().release) if sys.platform == "linux" else None
    if release is None or (int(release[1]), int(release[2])) < (6, 2):
        return None
    try:
        cpus = os.sysconf("SC_NPROCESSORS_ONLN")
    except (OSError, ValueError):
        return None
    return 3 * cpus * max(32, 2 * cpus) * _PAGE_BYTES


def maxrss_bytes() -> int | None:
    """The highest RSS of this process's life, as getrusage tells it."""
    try:
        import resource
    except ImportError:
        return None
    maximum = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return maximum if sys.platform == "darwin" else maximum * 1024


def _figure(text: bytes, name: bytes) -> int | None:
    """The kibibytes behind a name, as bytes."""
    at = text.find(name)
    if at < 0:
        return None
    try:
        return int(text[at + len(name) :].split(None, 1)[0]) * 1024
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
