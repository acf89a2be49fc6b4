"""A recording, opened for reading."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from .._errors import FindingsError
from . import checksums, files, findings, gpus, page, pictures, processes, stacks, steps, writers
from .clock import Clock, Moment, length_ns
from .manifest import Manifest
from .part import ALWAYS, Stretch
from .places import Folder, place_of
from .processes import Process
from .table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .places import Place

_AMOUNTS = steps.AMOUNTS
_MEM = ("boot_ns", "upid", "source", *_AMOUNTS)
# A process that does not change has a row every 30 s, and the recorder may be late.
_KEYFRAME_NS = 35_000_000_000
_ROLE = (
    ("name", "string"),
    ("framework", "string"),
    ("role", "string"),
    ("process_count", "int64"),
    ("held_bytes", "int64"),
    *((name, "int64") for name in _AMOUNTS),
    ("gpu_bytes", "int64"),
)


class Peak(NamedTuple):
    """The instant at which all processes together held most, every page once."""

    boot_ns: int
    """When, on the recording's clock."""
    ts: datetime.datetime
    """The same on the wall clock, cut to microseconds."""
    held_bytes: int | None
    """What they held: `held_peak` of the report. None where its findings are not saved; the instant
    is then that of the highest sum of RSS."""
    held_at_least_bytes: int | None
    """It is no less."""
    held_at_most_bytes: int | None
    """It is no more."""
    rss_bytes: int
    """The sum of RSS then, as psutil adds it up: pages that processes share count in each."""
    processes: Table
    """Who made it up, the largest first."""


class Recording:
    """A recording, closed or not: its tables by name, and what follows from them.

    ``recording.mem``, ``recording.process`` and so on are the tables (docs/tables.md),
    each a `Table`. What can't be read is in `problems`; look there before you conclude
    anything from an absence. Sums of RSS over processes count pages that they
    share in each of them, and so are upper bounds.

    At an address only what is asked for is fetched; `read` asks for some columns, or some time.
    """

    def __init__(self, path: str | os.PathLike[str] | Place) -> None:
        self._place = place_of(path) if isinstance(path, (str, os.PathLike)) else path
        self.path: Path | Any = str(self._place)
        if isinstance(self._place, Folder):
            self.path = self._place.path
        """Its directory, or its address."""
        try:
            text = self._place.run_json()
        except OSError as error:
            if self._place.is_remote and not isinstance(error, FileNotFoundError):
                raise
            raise FileNotFoundError(f"{self.path} is not a recording: {error}") from error
        self.run: dict[str, Any] = json.loads(text)
        """What was recorded, where and how: run.json."""
        self._problems: list[str] = []
        is_whole = checksums.is_json_whole(text)
        if is_whole is None:
            self._problems.append(
                "run.json has no checksum, as in the first versions of memtrace: what was changed "
                "in the recording, or is missing, is not noticed"
            )
        elif not is_whole:
            self._problems.append(
                "run.json does not match its checksum: it was changed after it was written, and is "
                "used as it is"
            )
        major = self.run.get("schema_version", {}).get("major")
        # In 2 `process.peak_rss_bytes` no longer has what a fork inherited and exec replaced.
        if major not in (1, 2):
            raise ValueError(
                f"{self.path} has tables of version {major}, this reads versions 1 and 2"
            )
        if self.run.get("state") == "recovered":
            self._problems.append(
                "the recorder was killed; `memtrace recover` closed the recording, and its "
                "last second may be missing"
            )
        elif self.run.get("state") != "closed":
            self._problems.append(
                "the recording was never closed: it goes on, or its recorder was killed and "
                "its last second may be missing"
            )
        self._tables: dict[str, Table] = {}
        self._is_checked = False

    @property
    def problems(self) -> list[str]:
        """What is missing or can't be read, one sentence each.

        All of the recording is looked at for it, once: tables that nobody has asked for yet
        are read to their end, a part at a time, and not kept; parts are held against their
        checksums. At an address it is only what was met in what was fetched.
        """
        manifest = self._manifest
        if not self._is_checked and not self._place.is_remote:
            self._is_checked = True
            for name in self.tables:
                if name not in self._tables:
                    is_recorded = name not in findings.NAMES
                    of = manifest if is_recorded else None
                    files.check(self._place, name, self._problems, of)
        return self._problems

    @cached_property
    def _manifest(self) -> Manifest | None:
        """Which files it has, where it tells that; those that are missing are problems."""
        if not self.run.get("id"):
            return None
        manifest = Manifest(self._place, self.run)
        for problem in manifest.problems:
            self._note(problem)
        return manifest

    @property
    def tables(self) -> list[str]:
        """The names of the tables that it has; findings that can't be read or are of another
        state of the recording are not among them, and `problems` says so."""
        return [
            name
            for name in files.tables_in(self._place)
            if name not in findings.NAMES or self._has_finding(name)
        ]

    def _has_finding(self, name: str) -> bool:
        try:
            self[name]
        except FindingsError as error:
            self._note(str(error))
            return False
        return True

    def _note(self, problem: str) -> None:
        if problem not in self._problems:
            self._problems.append(problem)

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            if name in findings.NAMES:
                self._tables[name] = findings.read(self._place, name)
            else:
                self._tables[name] = self._fetched(name)
        return self._tables[name]

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Table:
        """A table, or these columns of it, or the rows of a stretch, both ends included; moments
        are as those of `at`.

        Of its files no more is read than that: the columns, of those row groups that can have rows
        of the stretch. ``recording.read("role_mem", ["boot_ns", "name", "rss_bytes"])`` is the
        curves of all roles. What a process held when the stretch begins is a row before it, ten
        seconds at most. A stretch outside of the recording has no rows.
        """
        table = self._chosen(name, columns, since, until)
        table.check_columns(columns)
        return table

    def _chosen(
        self,
        name: str,
        columns: Sequence[str] | None,
        since: Moment | None,
        until: Moment | None,
    ) -> Table:
        """The same, with those of the columns that there are."""
        if columns is None and since is None and until is None:
            return self[name]
        if isinstance(columns, str):
            raise TypeError(f"columns is a list of names: [{columns!r}]")
        low, high = (
            None if one is None else self._peak_ns() if one == "peak" else self._clock.boot_of(one)
            for one in (since, until)
        )
        if name in findings.NAMES:
            return findings.read(self._place, name, columns, (low, high))
        return self._fetched(name, columns, (low, high))

    def _fetched(
        self, name: str, columns: Sequence[str] | None = None, stretch: Stretch = ALWAYS
    ) -> Table:
        if name not in files.tables_in(self._place):
            raise KeyError(f"no table {name!r}; there are: {', '.join(self.tables)}")
        told: list[str] = []
        table = files.read(self._place, name, told, columns, stretch, self._manifest)
        # What was found by the check is not told twice.
        for problem in told if not self._is_checked else ():
            self._note(problem)
        return table

    def __getattr__(self, name: str) -> Table:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *files.tables_in(self._place)]

    def __repr__(self) -> str:
        told, tables = str(self.run.get("state")), files.tables_in(self._place)
        # Only reading needs pyarrow, so a recording is shown without it too.
        with contextlib.suppress(ImportError):
            told = f"{(self.end_ns - self.start_ns) / 1e9:.1f} s"
            tables = self.tables
        return f"<Recording {self._place.name}: {told}, {', '.join(tables)}>"

    @property
    def start_ns(self) -> int:
        """When it began, on CLOCK_BOOTTIME."""
        return self._clock.start_ns

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self._clock.end_ns

    def wall_ns(self, boot_ns: int) -> int:
        """A time on CLOCK_BOOTTIME as one of the wall clock."""
        return self._clock.to_wall(boot_ns)

    def at(self, moment: Moment, by: str = "process") -> Table:
        """Who held what at a moment, the largest first: by process, or by role.

        A number is seconds since the start; see also `datetime`, `timedelta`, and text as
        ``+83.2s``, ``2026-03-01T12:03:07Z`` and ``peak``. Roles are read from the findings
        of the report (`FindingsError` where they are not saved).
        """
        time = self._time_of(moment)
        return self._roles_at(time) if _is_by_role(by) else self._at(time)

    def gpu_at(self, moment: Moment) -> Table:
        """Who held memory of which GPU at a moment, the largest first; `used_bytes` is None
        where the driver does not tell. Without a GPU the table is empty."""
        time = self._time_of(moment)
        return gpus.at(self._table_or_none("gpu_process"), self._processes, time)

    def gpu_devices_at(self, moment: Moment) -> Table:
        """The memory of each GPU at a moment; what its processes hold, what is reserved and
        what nothing explains add up to `used_bytes`. Without a GPU the table is empty."""
        time = self._time_of(moment)
        held = self._table_or_none("gpu_process")
        return gpus.devices_at(self._table_or_none("gpu_device"), held, time)

    def peak(self) -> Peak:
        """The most that all processes held at one instant, every page once, and who held it.

        It is the peak of the report, out of its findings (the table `held`). Where those are not
        saved it is the highest sum of RSS, `held_bytes` is None, and `problems` says so. It is not
        the sum of the processes' own peaks, which fall at different times.
        """
        time, held, at_least, at_most = self._peak
        wall = self.wall_ns(time)
        ts = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        ts += datetime.timedelta(microseconds=wall // 1_000)
        rss = (self._total.at(time) or (0,))[0] or 0
        return Peak(time, ts, held, at_least, at_most, rss, self._at(time))

    def resample(self, every: float | str | datetime.timedelta = "100ms") -> Table:
        """What each process held at regular instants, in long form.

        A process has a row for each instant of its life and one of zeros at the first
        instant after it. `rss_max_bytes` is the highest RSS since the instant before, so
        that a process which came and went in between is there too.
        """
        step = length_ns(every)
        if step <= 0:
            raise ValueError("the time between two instants must be more than zero")
        ticks = range(self.start_ns, self.end_ns + step, step)
        rows: list[tuple[Any, ...]] = []
        for upid, curve in self.curves().items():
            who = self._process(upid)[: len(processes.COLUMNS)]
            for tick, amounts, highest in steps.resampled(curve, ticks):
                rows.append((self.wall_ns(tick), tick, *who, *amounts, highest))
        rows.sort(key=lambda row: row[1:3])
        amounts_of = tuple((name, "int64") for name in (*_AMOUNTS, "rss_max_bytes"))
        kinds = (("ts", "timestamp"), ("boot_ns", "int64"), *processes.COLUMNS, *amounts_of)
        columns = list(zip(*rows)) or [()] * len(kinds)
        return Table.of(
            "resample",
            {name: (kind, list(values)) for (name, kind), values in zip(kinds, columns)},
        )

    def phases(self) -> Table:
        """What each named phase cost, as the report finds it: the table `phase`.

        In the order in which they began, with the memory of their process, of all that
        descends from it, of all processes together, of GPUs and of the page cache. Without
        marks and named calls the table is empty; where the findings of the report are not
        saved, `FindingsError` says how to get them.
        """
        return self["phase"]

    def stacks(self, moment: Moment | None = None) -> Table:
        """Who touched the memory that is resident, the largest first: a row for each process and
        stack, with `memtrace record --stacks`. Without that the table is empty.

        It stands as at a moment (`at` says which there are), of the processes that live then; by
        default as the report says: at the end, and of a process that has ended at the moment in its
        last three seconds at which most was resident. `resident_bytes` is what was still there of
        `grown_bytes`; of it `live_bytes` was in use and `kept_bytes` freed, and kept by malloc,
        both None where that is not known. `shared_bytes` was there too, in shared memory that other
        processes map.
        `returned_bytes` was seen to go back to the kernel. `python` and `native` are the innermost
        frames of each kind, `frames` has all of them, the outermost first, with `;` between.
        """
        ends = zip(*map(self["process"].column, ("upid", "exit_boot_ns")))
        return stacks.table(
            self._table_or_none("growth_site"),
            self._table_or_none("stack"),
            self._processes,
            {upid: end for upid, end in ends if end is not None},
            None if moment is None else self._time_of(moment),
        )

    @overload
    def plot(self, path: None = None, *, by: str | None = None, top: int = 8) -> Figure: ...
    @overload
    def plot(self, path: None = None, *, by: str | None = None, top: int = 8, ax: Axes) -> Axes: ...
    @overload
    def plot(
        self, path: str | os.PathLike[str], *, by: str | None = None, top: int = 8
    ) -> None: ...
    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        by: str | None = None,
        top: int = 8,
        ax: Axes | None = None,
    ) -> Figure | Axes | None:
        """Draws what is held over time, every page once and by role, with the phases as bands;
        below it the phases as a waterfall, and what is used on each GPU, where there are any. By
        process it is RSS, in which shared pages count in each.

        The limit of the root's cgroup and OOM kills stand in it.

        Gives a figure of matplotlib. With `path` only memory over time is drawn, into that file
        (``"peak.png"``), for a chat or a comment; with `ax` only that, on these axes, which are
        given back. `by` is ``"role"`` or ``"process"``; by default roles, which are read from the
        findings of the report, as phases are: where those are not saved, `problems` says so.
        """
        if by not in (None, "process", "role"):
            raise ValueError(f"by is 'process' or 'role', not {by!r}")
        if not isinstance(path, (str, os.PathLike, type(None))):
            raise TypeError(f"{path!r} is not the path of a file; the number of layers is top=8")
        if path is not None:
            pictures.save(self, path, top, by)
            return None
        if ax is not None:
            return pictures.memory.draw(self, top, ax, by)
        return pictures.figure(self, top, by)

    def log_to(
        self,
        writer: Any,
        *,
        by: str | None = None,
        every: float | str | datetime.timedelta = "1s",
        prefix: str = "memtrace",
    ) -> int:
        """Logs memory to a SummaryWriter of TensorBoard, the module `mlflow`, or a run of wandb.

        By ``"step"``: what each numbered phase (`step_40`) took, at its own step: `peak_gib` and
        `held_gib` (at its end) of all processes, every page once, `process_peak_gib` and
        `gpu_peak_gib`. By ``"time"``: what all processes held and their peak in each period of
        `every`; the steps are its numbers. By default steps, if there are any. Gives the number
        of steps. Needs the findings of the report (`FindingsError` where they are not saved).
        """
        if by not in (None, "step", "time"):
            raise ValueError(f"by is 'step' or 'time', not {by!r}")
        log = writers.sink(writer, prefix)
        points = [] if by == "time" else writers.by_step(self)
        if by == "time" or (by is None and not points):
            period = length_ns(every)
            if period <= 0:
                raise ValueError("the time between two points must be more than zero")
            points = list(writers.over_time(self, period))
        for point in points:
            log(point)
        return len(points)

    def report(self) -> page.Page:
        """The page of `memtrace report --format html`, which a notebook shows; `html` has its text.

        It is made by the program `memtrace`, which has to be installed; `MEMTRACE` names another
        place of it.
        """
        return page.Page.of(self.path)

    def names(self) -> dict[int, str]:
        """A short name for each process, by upid: its pid and its role or command line."""
        return {upid: f"{who.tgid} {who.name}" for upid, who in self._processes.items()}

    def curves(self) -> dict[int, steps.Steps]:
        """The memory of each process as a step function, by upid."""
        return self._curves

    @cached_property
    def _clock(self) -> Clock:
        is_closed = self.run.get("state") == "closed"
        mem = None if is_closed else self._rows_of_mem(("boot_ns",))
        return Clock(self.run, max(mem.column("boot_ns") if mem else [], default=None))

    @cached_property
    def _curves(self) -> dict[int, steps.Steps]:
        return self._curves_of(self._rows_of_mem(_MEM) or self["mem"])

    def _curves_of(self, mem: Table) -> dict[int, steps.Steps]:
        process = self["process"]
        ends = zip(process.column("upid"), process.column("exit_boot_ns"))
        amounts = zip(*(steps.from_zero(mem.column(name)) for name in _AMOUNTS))
        rows = zip(*(mem.column(name) for name in ("boot_ns", "upid", "source")), amounts)
        known = {upid: end for upid, end in ends if end is not None}
        return steps.curves(rows, known, self._peaks_of_processes())

    def _curves_near(self, time: int) -> dict[int, steps.Steps]:
        """The curves as far as they tell what was held at a time: of a recording at an address no
        more is fetched than has a row of each process that lived then."""
        is_closed = self.run.get("state") == "closed"
        if "_curves" in self.__dict__ or not self._place.is_remote or not is_closed:
            return self.curves()
        process = self["process"]
        lives = zip(*map(process.column, ("upid", "start_boot_ns", "exit_boot_ns")))
        alive = {
            upid
            for upid, start, end in lives
            if (start is None or start <= time) and (end is None or end > time)
        }
        since = time - _KEYFRAME_NS
        while True:
            mem = self._fetched("mem", _MEM, (since, time))
            sources = zip(mem.column("upid"), mem.column("source"))
            # What a process measured of itself adds to a row before.
            known = {upid for upid, source in sources if source != "self"}
            if since <= self.start_ns or alive <= known:
                return self._curves_of(mem)
            since = time - 8 * (time - since)

    def _peaks_of_processes(self) -> dict[int, int | None]:
        """The kernel's marks of the highest RSS, by upid, where they are no lower bounds."""
        process = self["process"]
        names = ("upid", "peak_rss_bytes", "peak_rss_source")
        return {
            upid: peak if source in ("kernel_hiwater", "footprint", "self", "wait4") else None
            for upid, peak, source in zip(*map(process.column, names))
        }

    @cached_property
    def _total(self) -> steps.Steps:
        return steps.total(self.curves())

    def _time_of(self, moment: Moment) -> int:
        return self._peak_ns() if moment == "peak" else self._clock.resolve(moment)

    def _peak_ns(self) -> int:
        return self._peak[0]

    @cached_property
    def _peak(self) -> tuple[int, int | None, int | None, int | None]:
        """When most was held, how much, and its bounds."""
        total = self._total
        if not total.times:
            raise ValueError("the recording has no memory of any process")
        names = ("boot_ns", "held_bytes", "held_at_least_bytes", "held_at_most_bytes")
        try:
            rows = list(zip(*map(self["held"].column, names)))
        except FindingsError as error:
            self._note(str(error))
            highest = max(range(len(total.times)), key=lambda row: total.held[row][0] or 0)
            return total.times[highest], None, None, None
        return max(rows, key=lambda row: row[1])

    def _table_or_none(self, name: str) -> Table | None:
        return self[name] if name in files.tables_in(self._place) else None

    def _rows_of_mem(self, columns: Sequence[str]) -> Table | None:
        """These columns of `mem`, if only they have to be fetched, else all of it."""
        if "mem" in self._tables or not self._place.is_remote:
            return self._table_or_none("mem")
        return self._fetched("mem", columns) if "mem" in files.tables_in(self._place) else None

    @cached_property
    def _processes(self) -> dict[int, Process]:
        return processes.of(self["process"])

    def _process(self, upid: int) -> Process:
        return self._processes.get(upid) or processes.unknown(upid)

    def _roles_at(self, time: int) -> Table:
        table = self["role_mem"]
        held = {
            row[1]: row[1:]
            for row in zip(*map(table.column, ("boot_ns", *(name for name, _ in _ROLE))))
            if row[0] <= time
        }
        rows = [row for row in held.values() if row[3]]
        rows.sort(key=lambda row: (row[4] is None, -(row[4] or 0), row[0]))
        columns = list(zip(*rows)) or [()] * len(_ROLE)
        return Table.of(
            "at", {name: (kind, list(values)) for (name, kind), values in zip(_ROLE, columns)}
        )

    def _at(self, time: int) -> Table:
        held = [
            (self._process(upid), amounts)
            for upid, curve in self._curves_near(time).items()
            for amounts in (curve.at(time),)
            if amounts is not None and amounts is not steps.NOTHING
        ]
        held.sort(key=lambda each: (each[1][0] is None, -(each[1][0] or 0), each[0].upid))
        columns: dict[str, tuple[str, list[Any]]] = {
            name: (kind, [getattr(who, name) for who, _ in held])
            for name, kind in (*processes.COLUMNS, ("comm", "string"), ("cmdline", "string"))
        }
        for place, name in enumerate(_AMOUNTS):
            columns[name] = ("int64", [amounts[place] for _, amounts in held])
        return Table.of("at", columns)


def _is_by_role(by: str) -> bool:
    if by not in ("process", "role"):
        raise ValueError(f"by is 'process' or 'role', not {by!r}")
    return by == "role"
