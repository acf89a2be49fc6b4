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
from taskstats import Ended, TaskStats

GROUP_PERIOD_S = 0.01

# What a start in whole seconds can be off by, and a clock that is set meanwhile.
SAME_START_NS = 2_000_000_000


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
        # By thread: whose it was, and when it began.
        self.owners: dict[int, list[tuple[int, Process]]] = defaultdict(list)
        self.ends: list[Ended] = []
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
        since_1970_ns = time.time_ns() - now_ns()
        for ended in self.ends:
            # Ids are used again, but not within seconds.
            began_ns = ended.began_s * 1_000_000_000 - since_1970_ns
            for start_ns, process in self.owners.get(ended.tid, []):
                if abs(start_ns - began_ns) <= SAME_START_NS:
                    hiwater = ended.hiwater_kib << 10
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
                        self.owners[event.tid].append((event.boot_ns, process))
                elif process is None:
                    continue
                elif event.what == FORK:
                    self.owners[event.tid].append((event.boot_ns, process))
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
                        del self.current[event.tgid]

    def account(self) -> None:
        while not self.is_over.is_set():
            self.ends.extend(self.stats.receive())

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
