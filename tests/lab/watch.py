"""The independent tracer: who belonged to a tree, and what it held, without a line of memtrace.

Membership comes from the process connector, peaks from taskstats, and what is held from polls of
/proc and of the tree's memory cgroup.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field

from memory import Charged, Group, Held, held
from proc_events import EXEC, EXIT, FORK, ProcEvents
from taskstats import TaskStats

GROUP_PERIOD_S = 0.02


@dataclass(eq=False)
class Process:
    """One process, from its fork on."""

    tgid: int
    parent: Process | None
    start_ns: int
    execs: int = 0
    end_ns: int | None = None
    # As wait4 gives it.
    status: int | None = None
    # The highest RSS of any address space that its threads ended in.
    hiwater_bytes: int | None = None
    polls: list[tuple[int, Held]] = field(default_factory=list)
    # Those that live. The first can end before the others, and /proc then shows no memory for it.
    threads: set[int] = field(default_factory=set)


@dataclass
class Poll:
    """One look at all living members: when it began and ended, and what they held together."""

    begin_ns: int
    end_ns: int
    rss_bytes: int
    pss_bytes: int
    process_count: int


class Watch:
    """Watches what descends from one process, from `with` on; `stop` joins what was seen.

    `root` is a process that is not a member itself: memtrace, or the lab. A child of it is a member
    from its first exec on, so that memtrace's own helpers, which never exec, are none.
    """

    def __init__(self, root: int, group: Group | None, period_s: float) -> None:
        self.root, self.group, self.period_s = root, group, period_s
        self.events, self.stats = ProcEvents(), TaskStats()
        self.current: dict[int, Process] = {root: Process(root, None, 0)}
        self.everyone: list[Process] = []
        self.owners: dict[int, list[Process]] = defaultdict(list)
        self.ends: dict[int, list[int]] = defaultdict(list)
        self.polls: list[Poll] = []
        self.charges: list[tuple[int, Charged]] = []
        self.is_over = threading.Event()
        work = [self.follow, self.account, self.poll]
        if group:
            work.append(self.charge)
        self.threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Ends the watch; what is still alive stays so."""
        time.sleep(0.3)
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        self.events.close()
        self.stats.close()
        for tid, owners in self.owners.items():
            # Ids are used again; where an end was missed nobody can say whose the others are.
            if len(owners) == len(self.ends[tid]):
                for process, hiwater in zip(owners, self.ends[tid]):
                    process.hiwater_bytes = max(process.hiwater_bytes or 0, hiwater)

    def members(self) -> list[Process]:
        """Everyone that ever belonged to the tree."""
        return [process for process in self.everyone if self.is_member(process)]

    def is_member(self, process: Process) -> bool:
        """Whether a process belongs to the tree."""
        top = process
        while top.parent is not None and top.parent.tgid != self.root:
            top = top.parent
        return top.parent is not None and top.execs > 0

    def is_complete(self) -> bool:
        """Whether the kernel found room for everything it had to tell."""
        return self.events.overruns == 0 and self.stats.overruns == 0

    def follow(self) -> None:
        while not self.is_over.is_set():
            for event in self.events.receive():
                process = self.current.get(event.tgid)
                if event.what == FORK and event.tid == event.tgid:
                    parent = self.current.get(event.parent_tgid)
                    if parent:
                        process = Process(event.tgid, parent, event.boot_ns, threads={event.tid})
                        self.current[event.tgid] = process
                        self.everyone.append(process)
                        self.owners[event.tid].append(process)
                elif process is None:
                    continue
                elif event.what == FORK:
                    self.owners[event.tid].append(process)
                    process.threads.add(event.tid)
                elif event.what == EXEC:
                    process.execs += 1
                    process.threads = {event.tgid}
                elif event.what == EXIT:
                    process.threads.discard(event.tid)
                    if event.tid == event.tgid:
                        process.status = event.status
                    if not process.threads:
                        process.end_ns = event.boot_ns

    def account(self) -> None:
        while not self.is_over.is_set():
            for ended in self.stats.receive():
                self.ends[ended.tid].append(ended.hiwater_kib << 10)

    def poll(self) -> None:
        while not self.is_over.wait(self.period_s):
            begin = now_ns()
            alive = [each for each in list(self.everyone) if each.end_ns is None]
            found = []
            for process in alive:
                thread = next(iter(list(process.threads)), process.tgid)
                if self.is_member(process) and (memory := held(thread)):
                    process.polls.append((now_ns(), memory))
                    found.append(memory)
            rss, pss = (sum(each[place] for each in found) for place in (0, 1))
            self.polls.append(Poll(begin, now_ns(), rss, pss, len(found)))

    def charge(self) -> None:
        assert self.group
        while not self.is_over.wait(GROUP_PERIOD_S):
            self.charges.append((now_ns(), self.group.charged()))


def now_ns() -> int:
    """The clock of the recording, CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
