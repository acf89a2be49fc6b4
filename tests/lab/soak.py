"""A month of the always-on recording within hours: one recording after another, of which old ones
are downsampled and removed, a program beside it that hears of kills, and readers. soak_checks.py
holds what remains against what the load says of itself."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import soak_checks
from checks import Finding
from ends import small_group
from leaks import compiled

SOURCE = Path(__file__).parent / "programs" / "soak.c"
DAYS = 30
# memtrace knows ages in hours and days only (--keep, --downsample): within less than some hours a
# month's recordings are kept for one hour, and within less than that by their size alone.
KEPT_DAYS, HOUR_S = 20, 3600
KEPT_BYTES, KEPT_BYTES_OF_FEW = 64 << 20, 8 << 20
# From so many days on a recording has this period in seconds.
TIERS = {1: 1, 7: 10}
LIMIT_BYTES = 64 << 20
BUSY, CHURN_PER_S = 5, 60
SAMPLE_S = 10
# So long at most it takes until a first recording is there, and until a hook was called.
PATIENCE_S = 60
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def now_ns() -> int:
    """The clock of a recording."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Usage(NamedTuple):
    """What a process takes."""

    pid: int
    rss_bytes: int
    anon_bytes: int
    cpu_s: float


class Sample(NamedTuple):
    """What was there at an instant."""

    time_s: float
    # What starts recorders, the one that records, and `memtrace watch`.
    parent: Usage | None
    recorder: Usage | None
    watch: Usage | None
    bytes: int
    files: int


class Event(NamedTuple):
    """What happened once a day, and between which instants."""

    kind: str
    pid: int
    begin_ns: int
    end_ns: int
    name: str = ""


class Call(NamedTuple):
    """A command of memtrace that read, or downsampled, meanwhile."""

    words: str
    seconds: float
    status: int
    rss_bytes: int
    said: str


@dataclass
class Soak:
    """The trial while it runs, and what was seen of it."""

    memtrace: Path
    place: Path
    day_s: float
    group: Path | None
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reads: list[Call] = field(default_factory=list)
    downsamplings: list[Call] = field(default_factory=list)
    # Each recording's first and last instant, as far as it was seen, on both clocks.
    spans: dict[str, soak_checks.Span] = field(default_factory=dict)
    busy: list[int] = field(default_factory=list)
    # What one recording took at most, with what of it was not compressed yet.
    largest_bytes: int = 0
    troubles: list[str] = field(default_factory=list)
    load_cpu: float = 0
    recorder_cpu: float = 0

    @property
    def recordings(self) -> Path:
        return self.place / "recordings"

    @property
    def kept_bytes(self) -> int:
        """The size that is kept."""
        grows_old = self.day_s * DAYS > self.keep_h * HOUR_S
        return KEPT_BYTES if grows_old else KEPT_BYTES_OF_FEW

    @property
    def keep_h(self) -> int:
        """The age that is kept, in hours."""
        return max(1, int(KEPT_DAYS * self.day_s / HOUR_S))

    def program(self, name: str) -> str:
        return str(self.place / name)

    def start(self, name: str, *line: str) -> subprocess.Popen[bytes]:
        """Starts what runs all the time; it writes into files of its name."""
        out, err = self.place / f"{name}.out", self.place / f"{name}.err"
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            return subprocess.Popen(line, cwd=self.recordings, stdout=stdout, stderr=stderr)

    def look(self, parent: int, watch: int) -> None:
        """Takes a sample."""
        sizes: Counter[str] = Counter()
        files = 0
        for folder, _, names in os.walk(self.recordings):
            recording = Path(folder).relative_to(self.recordings).parts[:1]
            for name in names:
                with suppress(FileNotFoundError):
                    sizes["".join(recording)] += os.lstat(os.path.join(folder, name)).st_size
                    files += 1
        for path in self.recordings.glob("memtrace-*"):
            if (span := soak_checks.span(path)) is not None:
                self.spans[path.name] = span
        recorder = (recorders(parent) or [0])[-1]
        used = [usage(pid) for pid in (parent, recorder, watch)]
        sample = Sample(time.monotonic(), used[0], used[1], used[2], sizes.total(), files)
        self.samples.append(sample)
        self.largest_bytes = max(self.largest_bytes, *sizes.values(), 0)

    def call(self, *words: str) -> Call:
        """Runs a command of memtrace in the directory of the recordings."""
        begin = time.monotonic()
        line = [self.program("timed"), str(self.memtrace), *words]
        ran = subprocess.run(line, cwd=self.recordings, capture_output=True, text=True)
        *said, last = ran.stderr.splitlines()
        status, rss_kib = map(int, last.split())
        text = "\n".join(said) + ran.stdout
        return Call(" ".join(words), time.monotonic() - begin, status, rss_kib << 10, text)

    def crash(self, _day: int) -> None:
        self.end_by(signal.SIGSEGV, "crash", [self.program("crashing")])

    def oom(self, _day: int) -> None:
        if self.group:
            enter = ["/bin/sh", "-c", f'echo $$ > {self.group}/cgroup.procs && exec "$0"']
            self.end_by(signal.SIGKILL, "oom-kill", [*enter, self.program("greedy")])

    def end_by(self, number: int, kind: str, line: list[str]) -> None:
        """Runs what ends by a signal."""
        begin = now_ns()
        process = subprocess.Popen(line)
        if process.wait() != -number:
            raise ChildProcessError(f"{line[-1]} ended with {process.returncode}")
        self.events.append(Event(kind, process.pid, begin, now_ns()))

    def mark(self, day: int) -> None:
        begin, words = now_ns(), ["mark", name := f"day-{day}", "--attr", f"n={day}"]
        call = self.call(*words)
        if "recordings of different processes" in call.said:
            # Somebody else records on this machine.
            call = self.call(*words, "-r", max(os.listdir(self.recordings)))
        self.reads.append(call)
        if call.status == 0:
            self.events.append(Event("mark", 0, begin, now_ns(), name))

    def read(self, _day: int) -> None:
        """What a person asks for once a day."""
        last = f"{max(10, round(self.day_s / 24))}s"
        self.reads.append(self.call("report", ".", "--last", last))
        if any(event.kind == "oom-kill" for event in self.events):
            self.reads.append(self.call("report", ".", "--at", "oom-kill"))

    def downsample(self, _day: int) -> None:
        """What `record --downsample` does each hour, in the time of this trial."""
        now = time.time()
        for name, span in sorted(self.spans.items()):
            age = (now - span.end_wall_ns / 1e9) / self.day_s if span.is_closed else 0
            period = max((TIERS[days] for days in TIERS if age > days), default=0)
            path = self.recordings / name
            if period and period > soak_checks.period_s(path) and path.exists():
                self.downsamplings.append(self.call("downsample", name, "--to", f"{period}s"))

    def live(self, parent: subprocess.Popen[bytes]) -> None:
        """Lives through the days."""
        begin = time.monotonic()
        # A day in three has neither crash nor kill: around these all rows stay for minutes.
        both: list[tuple[float, Callable[[int], None]]] = [(0.2, self.crash), (0.5, self.oom)]
        each = [(0.1, self.downsample), (0.4, self.mark), (0.7, self.read)]
        for day in range(DAYS):
            # Another time of each day: recordings begin and end at all of them.
            todo = [((at + 0.37 * day) % 1, does) for at, does in each + both * (day % 3 != 2)]
            for at, does in sorted(todo, key=lambda one: one[0]):
                rest(begin + (day + at) * self.day_s)
                if parent.poll() is not None:
                    self.troubles.append(f"the recorder ended on day {day}")
                    return
                try:
                    does(day)
                except (OSError, subprocess.SubprocessError, ValueError) as error:
                    self.troubles.append(f"day {day}: {type(error).__name__}: {error}")
        rest(begin + DAYS * self.day_s)


def rest(until_s: float) -> None:
    time.sleep(max(0.0, until_s - time.monotonic()))


def usage(pid: int) -> Usage | None:
    """What a process takes; `None` of one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kib = {name: int(rest.split()[0]) for name, rest in (line.split(":") for line in lines)}
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(stat[11]) + int(stat[12])) * TICK_S
        return Usage(pid, kib["Rss"] << 10, kib["Anonymous"] << 10, cpu_s)
    except (OSError, KeyError):
        return None


def recorders(parent: int) -> list[int]:
    """The recorders that a process has started, the newest last."""
    found = []
    with suppress(OSError):
        for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            if b"--in-turn" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def soak(time_s: float, memtrace: Path, kept: Path) -> Iterator[tuple[str, Finding]]:
    """Lives through a month within a time."""
    place = kept / "soak"
    shutil.rmtree(place, ignore_errors=True)
    (place / "recordings").mkdir(parents=True)
    compiled(SOURCE, place / "load", "")
    for name in ("churn", "busy", "crashing", "greedy", "timed"):
        (place / name).symlink_to("load")
    hook = place / "hook.sh"
    hook.write_text(f"#!/bin/sh\ncat >> {place}/heard; echo >> {place}/heard\n")
    hook.chmod(0o755)
    with ExitStack() as stack:
        try:
            group = stack.enter_context(small_group("soak", LIMIT_BYTES))
        except OSError:
            group = None
        trial = Soak(memtrace, place, time_s / DAYS, group)
        run(trial)
        # So that it can be asked again.
        (place / "seen").write_bytes(pickle.dumps(trial))
        for finding in soak_checks.findings(trial):
            yield "soak", finding


def run(trial: Soak) -> None:
    """Starts all, lives through the days, and ends all."""
    day_s = int(trial.day_s)
    load = [trial.start("churn", trial.program("churn"), str(CHURN_PER_S))]
    for seed in range(BUSY):
        line = [trial.program("busy"), str(int(trial.day_s * 1e9)), str(seed)]
        load.append(trial.start(f"busy-{seed}", *line))
        trial.busy.append(load[-1].pid)
    kept = f"{trial.keep_h}h,{trial.kept_bytes}B"
    record = ["record", "-a", "--every", f"{day_s}s", "--keep", kept]
    tiers = f"{trial.keep_h}h:10s"
    parent = trial.start("record", str(trial.memtrace), *record, "--downsample", tiers)
    wait_for(lambda: any(trial.recordings.glob("memtrace-*/run.json")))
    own = ["watch", ".", "--", str(trial.place / "hook.sh")]
    watch = trial.start("watch", str(trial.memtrace), *own)
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLE_S):
            trial.look(parent.pid, watch.pid)

    sampler = threading.Thread(target=look)
    sampler.start()
    try:
        trial.live(parent)
    finally:
        ended.set()
        sampler.join()
        for process in (parent, watch, *load):
            if process.poll() is not None:
                trial.troubles.append(f"{process.args!r} ended with {process.returncode}")
        trial.recorder_cpu = end(parent)
        trial.look(parent.pid, watch.pid)
        wait_for(lambda: not soak_checks.unheard(trial))
        end(watch)
        trial.load_cpu = sum(end(process) for process in load)


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until something is so, or for as long as that may take."""
    until = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < until:
        time.sleep(0.5)


def end(process: subprocess.Popen[bytes]) -> float:
    """Ends a process, and says what it took of CPUs, with its children that it waited for."""
    if process.returncode is None:
        process.terminate()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return used.ru_utime + used.ru_stime
    return 0
