"""What the descendants of this process hold, where no recorder tells: sampled from outside.

The sampler is a process and not a thread, because Python 3.12 and newer warn of every fork of a
program that has threads. It is nobody's child here: a program that counts or awaits its children
does not find it. This file is its program too, so it imports nothing of the package.

Of a descendant counts what it alone maps (Private_* of smaps_rollup), so that a fork, which has
all pages of its parent, adds what it wrote. Where the kernel's mark of its highest RSS (VmHWM) rose
since the last sample of the same section, what it had more then is its own too.
"""

from __future__ import annotations

import mmap
import os
import select
import subprocess
import sys
import time
from typing import NamedTuple

PERIOD_S = 0.01
# The sampler rests so many times as long as a sample took: 5 % of a CPU at most.
_REST = 19
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
# PF_FORKNOEXEC of <linux/sched.h>.
_FORKED = 0x40
# A test may replace the builtin.
_open = open


class Held(NamedTuple):
    """What the descendants held in one section."""

    begin_bytes: int
    """When it began."""
    end_bytes: int
    """When it ended."""
    peak_bytes: int
    """At most at one sample."""
    total_peak_bytes: int
    """With this process (its RSS) at most at one sample with a descendant; else 0."""


# What the sampler and its program tell each other, in memory that they share: nobody waits. The
# program counts sections, odd while one is open, and says when the last one began. All else is the
# sampler's.
_COUNT, _BEGIN_NS, _PID, _SAMPLED_COUNT, _PEAK, _TOTAL, _IS_REFUSED = range(7)
_SHARED_BYTES = 4096


class Sampler:
    """Samples sections, one after the other. `reason` says why it can't, once it can't."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._pid = os.getpid()
        self._family = _Family(str(self._pid))
        self._begin_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        if not os.path.exists(f"/proc/self/task/{self._pid}/children"):
            self.reason = "this system does not list the children of a process"
            return
        try:
            self._shared = self._start()
        except (OSError, ValueError, AttributeError) as error:
            self.reason = f"the sampler did not start: {error}"

    def _start(self) -> memoryview:
        file = os.memfd_create("memtrace")
        try:
            os.ftruncate(file, _SHARED_BYTES)
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(self._pid), str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(file,),
            )
            # It forks, and its child goes on.
            self._process.wait()
            assert self._process.stdout is not None
            if not self._process.stdout.read(1):
                raise OSError("it ended at once")
            shared = memoryview(mmap.mmap(file, _SHARED_BYTES)).cast("q")
            self._family.sampler = str(shared[_PID])
            return shared
        finally:
            os.close(file)

    def begin(self) -> None:
        """A section begins."""
        if self._can_ask():
            self._begin_bytes = self._held_bytes() or 0
            self._shared[_BEGIN_NS] = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            self._shared[_COUNT] += 1

    def end(self) -> Held | None:
        """A section ends; None when unknown."""
        if not self._can_ask():
            return None
        count = self._shared[_COUNT]
        self._shared[_COUNT] += 1
        end = self._held_bytes()
        peak = total = 0
        if self._shared[_SAMPLED_COUNT] == count:
            peak, total = self._shared[_PEAK], self._shared[_TOTAL]
        if end is not None:
            peak, total = max(peak, end), max(total, end + self._family.parent_bytes())
        if self._shared[_IS_REFUSED] or self._family.is_refused:
            self.reason = "the memory of a child may not be read"
            return None
        return Held(self._begin_bytes, end or 0, peak, total)

    def _held_bytes(self) -> int | None:
        try:
            # Awaits nobody; cheap, and most sections have no child.
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        return self._family.held_bytes()

    def _can_ask(self) -> bool:
        # The fork of a program has other children, which nobody samples.
        if self.reason or self._pid != os.getpid():
            return False
        assert self._process is not None and self._process.stdout is not None
        # The pipe from it can be read when it has ended.
        end = select.poll()
        end.register(self._process.stdout, select.POLLIN)
        if end.poll(0):
            self.reason = "the sampler is gone"
        return self.reason is None

    def close(self) -> None:
        """Lets the sampler end."""
        process, self._process = self._process, None
        if process is not None:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _Family:
    """The descendants of a process, as /proc has them."""

    def __init__(self, tgid: str) -> None:
        self.tgid = tgid
        self.sampler: str | None = None
        """The sampler. It is a child where the process is the first of its PID namespace."""
        self.is_refused = False
        # By child, its mark of the highest RSS when it was last looked at in this section.
        self._marks: dict[str, int] = {}
        self._begin_ticks: int | None = None

    def begin(self, boot_ns: int) -> None:
        """From now on marks count, too: those of older children when they rise."""
        self._marks = {}
        self._begin_ticks = boot_ns * os.sysconf("SC_CLK_TCK") // 1_000_000_000

    def held_bytes(self) -> int | None:
        """What they hold together; None without one."""
        marks: dict[str, int] = {}
        held = None
        parents = [self.tgid]
        while parents:
            parent = parents.pop()
            for task in _names(f"/proc/{parent}/task"):
                thread = f"/proc/{parent}/task/{task}"
                for child in _read(f"{thread}/children").decode().split():
                    if child == self.sampler:
                        continue
                    parents.append(child)
                    held = (held or 0) + self._of(child, thread, marks)
        if self._begin_ticks is not None:
            self._marks = marks
        return held

    def parent_bytes(self) -> int:
        """RSS of the process itself."""
        fields = _read(f"/proc/{self.tgid}/statm").split()
        return int(fields[1]) * _PAGE_BYTES if fields else 0

    def _of(self, child: str, thread: str, marks: dict[str, int]) -> int:
        stat = _stat(f"/proc/{child}")
        mark = _kib_of(_read(f"/proc/{child}/status"), b"VmHWM:")
        if len(stat) < 20 or not mark:
            return 0
        marks[child] = mark
        is_older = self._begin_ticks is None or int(stat[19]) <= self._begin_ticks
        last = self._marks.get(child, mark if is_older else 0)
        # Between vfork and exec a child runs in the memory of its parent, a thread of which waits
        # for it (D).
        if int(stat[6]) & _FORKED and (not last or _stat(thread)[:1] == [b"D"]):
            return 0
        try:
            with _open(f"/proc/{child}/smaps_rollup", "rb") as file:
                rollup = file.read()
        except PermissionError:
            self.is_refused = True
            return 0
        except OSError:
            # It has ended.
            return 0
        private = _kib_of(rollup, b"Private_")
        return private if mark == last else max(private, mark - _kib_of(rollup, b"Rss:") + private)


def _kib_of(text: bytes, name: bytes) -> int:
    """The sum of the lines of that name, in bytes."""
    lines = (line.split() for line in text.splitlines() if line.startswith(name))
    return sum(int(words[1]) << 10 for words in lines)


def _stat(place: str) -> list[bytes]:
    """The fields of stat behind the name: the state, ..."""
    return _read(f"{place}/stat").rpartition(b")")[2].split()


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _read(path: str) -> bytes:
    try:
        with _open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _sample_until_gone(tgid: str, file: int) -> None:
    shared = memoryview(mmap.mmap(file, _SHARED_BYTES)).cast("q")
    shared[_PID] = os.getpid()
    os.write(1, b"!")
    family = _Family(tgid)
    family.sampler = str(os.getpid())
    rest, last_count = PERIOD_S, 0
    # Its end of the pipe closes when the program ends, unless a fork of it still has it.
    while not select.select([0], [], [], rest)[0] and _names(f"/proc/{tgid}/task"):
        count = shared[_COUNT]
        if not count % 2:
            continue
        if count != last_count:
            last_count = count
            family.begin(shared[_BEGIN_NS])
        before = time.process_time()
        held = family.held_bytes()
        if held is not None:
            total = held + family.parent_bytes()
            if shared[_SAMPLED_COUNT] == count:
                held, total = max(held, shared[_PEAK]), max(total, shared[_TOTAL])
            # What was sampled while one section followed another is nobody's.
            if shared[_COUNT] == count:
                shared[_SAMPLED_COUNT] = -1
                shared[_PEAK], shared[_TOTAL] = held, total
                shared[_SAMPLED_COUNT] = count
            shared[_IS_REFUSED] |= family.is_refused
        rest = max(PERIOD_S, _REST * (time.process_time() - before))


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    _sample_until_gone(sys.argv[1], int(sys.argv[2]))
