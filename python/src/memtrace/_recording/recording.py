"""A recording, opened for reading."""

from __future__ import annotations

import datetime
import json
import os
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from . import files, gpus, plot, steps
from .clock import Clock, Moment, length_ns
from .phases import Mark, Phase, Telling, paired, tellings
from .table import Table

_AMOUNTS = steps.AMOUNTS


class Peak(NamedTuple):
    """The instant at which all processes together held most."""

    boot_ns: int
    """When, on the recording's clock."""
    ts: datetime.datetime
    """The same on the wall clock, cut to microseconds."""
    rss_bytes: int
    """The sum of RSS: an upper bound, because pages that processes share count in each."""
    processes: Table
    """Who made it up, the largest first."""


class Recording:
    """A recording, closed or not: its tables by name, and what follows from them.

    ``recording.mem``, ``recording.process`` and so on are the tables (docs/tables.md),
    each a `Table`. What could not be read is in `problems`; look there before you
    conclude anything from an absence. Sums of RSS over processes count pages that they
    share in each of them, and so are upper bounds.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            text = (self.path / "run.json").read_text()
        except OSError as error:
            raise FileNotFoundError(f"{self.path} is not a recording: {error}") from error
        self.run: dict[str, Any] = json.loads(text)
        """What was recorded, where and how: run.json."""
        self.problems: list[str] = []
        """What could not be read of the tables that were asked for, one sentence each."""
        major = self.run.get("schema_version", {}).get("major")
        # In 2 `process.peak_rss_bytes` no longer has what a fork inherited and exec replaced.
        if major not in (1, 2):
            raise ValueError(
                f"{self.path} has tables of version {major}, this reads versions 1 and 2"
            )
        if self.run.get("state") == "recovered":
            self.problems.append(
                "the recorder was killed; `memtrace recover` closed the recording, and its "
                "last second may be missing"
            )
        elif self.run.get("state") != "closed":
            self.problems.append(
                "the recording was never closed: it goes on, or its recorder was killed and "
                "its last second may be missing"
            )
        self._tables: dict[str, Table] = {}

    @property
    def tables(self) -> list[str]:
        """The names of the tables that it has."""
        return files.tables_in(self.path)

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            if name not in self.tables:
                raise KeyError(f"no table {name!r}; there are: {', '.join(self.tables)}")
            self._tables[name] = files.read(self.path, name, self.problems)
        return self._tables[name]

    def __getattr__(self, name: str) -> Table:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0]) from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.tables]

    def __repr__(self) -> str:
        seconds = (self.end_ns - self.start_ns) / 1e9
        return f"<Recording {self.path.name}: {seconds:.1f} s, {', '.join(self.tables)}>"

    @property
    def start_ns(self) -> int:
        """When it began, on CLOCK_BOOTTIME."""
        return self._clock.start_ns

    @property
    def end_ns(self) -> int:
        """When it ended."""
        return self._clock.end_ns

    def at(self, moment: Moment) -> Table:
        """Who held what at a moment, the largest first.

        A number is seconds since the start; see also `datetime`, `timedelta`, and text as
        ``+83.2s``, ``2026-03-01T12:03:07Z`` and ``peak``.
        """
        return self._at(self._time_of(moment))

    def gpu_at(self, moment: Moment) -> Table:
        """Who held memory of which GPU at a moment, the largest first; `used_bytes` is None
        where the driver does not tell. Without a GPU the table is empty."""
        time = self._time_of(moment)
        return gpus.at(self._table_or_none("gpu_process"), self["process"], time)

    def gpu_devices_at(self, moment: Moment) -> Table:
        """The memory of each GPU at a moment; what its processes hold, what is reserved and
        what nothing explains add up to `used_bytes`. Without a GPU the table is empty."""
        time = self._time_of(moment)
        held = self._table_or_none("gpu_process")
        return gpus.devices_at(self._table_or_none("gpu_device"), held, time)

    def peak(self) -> Peak:
        """The highest sum of RSS over all processes at one instant, and who made it up.

        It is what psutil would add up: a page that several processes map counts in each. What
        they hold, every page once, is `held_peak` of `memtrace report -f json`. Nor is it the sum
        of the processes' own peaks, which fall at different times.
        """
        time = self._peak_ns()
        wall = self._clock.to_wall(time)
        ts = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
        ts += datetime.timedelta(microseconds=wall // 1_000)
        return Peak(time, ts, (self._total.at(time) or (0,))[0] or 0, self._at(time))

    def resample(self, every: float | str | datetime.timedelta = "100ms") -> Table:
        """What each process held at regular instants, in long form.

        A process has a row for each instant of its life and one of zeros at the first
        instant after it. `rss_max_bytes` is the highest RSS since the instant before, so
        that a process which came and went in between is there too.
        """
        step = length_ns(every)
        if step <= 0:
            raise ValueError("the time between two instants must be more than nothing")
        ticks = range(self.start_ns, self.end_ns + step, step)
        rows: list[tuple[Any, ...]] = []
        for upid, curve in self.curves().items():
            for tick, amounts, highest in steps.resampled(curve, ticks):
                rows.append((self._clock.to_wall(tick), tick, upid, *amounts, highest))
        rows.sort(key=lambda row: row[1:3])
        names = ("ts", "boot_ns", "upid", *_AMOUNTS, "rss_max_bytes")
        columns = list(zip(*rows)) or [()] * len(names)
        return Table.of(
            "resample",
            {
                name: ("timestamp" if name == "ts" else "int64", list(values))
                for name, values in zip(names, columns)
            },
        )

    def phases(self) -> Table:
        """The phases, in the order in which they began, with the memory of their process and
        of all processes together at both ends and at most, and the highest sum over all that
        descends from its process.

        A phase without an end is still open: it has no end, and its peak goes to the end
        of the recording. Without marks the table is empty.
        """
        found = paired(self._marks())
        nothing = steps.Steps([], [])
        columns: dict[str, tuple[str, list[Any]]] = {
            "name": ("string", [phase.name for phase in found]),
            "upid": ("int64", [phase.upid for phase in found]),
            "tgid": ("int32", [phase.tgid for phase in found]),
            "begin_ts": ("timestamp", [self._clock.to_wall(phase.begin_ns) for phase in found]),
            "begin_boot_ns": ("int64", [phase.begin_ns for phase in found]),
            "end_boot_ns": ("int64", [phase.end_ns for phase in found]),
            "duration_ns": (
                "int64",
                [None if p.end_ns is None else p.end_ns - p.begin_ns for p in found],
            ),
        }
        own = [self.curves().get(-1 if p.upid is None else p.upid, nothing) for p in found]
        for prefix, curves in (("", own), ("tree_", [self._total] * len(found))):
            memory = [self._memory_of(phase, curve) for phase, curve in zip(found, curves)]
            for place, column in enumerate(("begin", "end", "delta", "peak")):
                values = [figures[place] for figures in memory]
                columns[f"{prefix}rss_{column}_bytes"] = ("int64", values)
        peaks = [self._descendants_peak(phase) for phase in found]
        columns["child_rss_peak_bytes"] = ("int64", peaks)
        columns["attributes"] = ("string", [phase.attributes for phase in found])
        return Table.of("phases", columns)

    def plot(self, top: int = 8, ax: Any = None) -> Any:
        """Draws RSS over time, stacked by process, with the phases, on matplotlib's axes.

        Returns the axes; `ax` draws on existing ones.
        """
        return plot.plot(self, top, ax)

    def names(self) -> dict[int, str]:
        """A short name for each process, by upid: its pid and its command line or comm."""
        table = self["process"]
        columns = (table.column(name) for name in ("upid", "tgid", "comm", "cmdline"))
        return {
            upid: f"{tgid} {_short(cmdline or comm or '?')}"
            for upid, tgid, comm, cmdline in zip(*columns)
        }

    def curves(self) -> dict[int, steps.Steps]:
        """The memory of each process as a step function, by upid."""
        return self._curves

    @cached_property
    def _clock(self) -> Clock:
        times = self["mem"].column("boot_ns") if "mem" in self.tables else []
        return Clock(self.run, max(times, default=None))

    @cached_property
    def _curves(self) -> dict[int, steps.Steps]:
        process, mem = self["process"], self["mem"]
        ends = zip(process.column("upid"), process.column("exit_boot_ns"))
        amounts = zip(*(mem.column(name) for name in _AMOUNTS))
        rows = zip(mem.column("boot_ns"), mem.column("upid"), amounts)
        known = {upid: end for upid, end in ends if end is not None}
        return steps.curves(rows, known, self._told())

    def _told(self) -> dict[int, list[Telling]]:
        """What processes measured of themselves, by upid: newer than their rows."""
        told: dict[int, list[Telling]] = {}
        marks = self._marks()
        known = self._peaks_of_processes() if marks else {}
        for telling in tellings(marks, paired(marks)):
            peak = known.get(telling.upid)
            if peak is None:
                told.setdefault(telling.upid, []).append(telling)
            # An attribute of a program can have the name and mean something else.
            elif telling.rss_bytes <= peak + peak // 8:
                held = telling._replace(rss_bytes=min(telling.rss_bytes, peak))
                told.setdefault(telling.upid, []).append(held)
        return told

    def _peaks_of_processes(self) -> dict[int, int | None]:
        """The kernel's marks of the highest RSS, by upid, where they are no lower bounds."""
        process = self["process"]
        names = ("upid", "peak_rss_bytes", "peak_rss_source")
        return {
            upid: peak if source in ("kernel_hiwater", "footprint", "told", "wait4") else None
            for upid, peak, source in zip(*map(process.column, names))
        }

    @cached_property
    def _total(self) -> steps.Steps:
        return steps.total(self.curves())

    def _time_of(self, moment: Moment) -> int:
        return self._peak_ns() if moment == "peak" else self._clock.resolve(moment)

    def _peak_ns(self) -> int:
        """When the sum of RSS over all processes was highest."""
        total = self._total
        if not total.times:
            raise ValueError("the recording has no memory of any process")
        return total.times[max(range(len(total.times)), key=lambda row: total.held[row][0] or 0)]

    def _table_or_none(self, name: str) -> Table | None:
        return self[name] if name in self.tables else None

    def _marks(self) -> list[Mark]:
        if "mark" not in self.tables:
            return []
        mark = self["mark"]
        return [Mark(*row) for row in zip(*map(mark.column, Mark._fields))]

    def _memory_of(self, phase: Phase, curve: steps.Steps) -> tuple[int | None, ...]:
        begin = (curve.at(phase.begin_ns) or (None,))[0]
        end = None if phase.end_ns is None else (curve.at(phase.end_ns) or (None,))[0]
        delta = None if begin is None or end is None else end - begin
        last = self.end_ns if phase.end_ns is None else phase.end_ns
        return begin, end, delta, curve.highest(phase.begin_ns, last)

    def _descendants_peak(self, phase: Phase) -> int | None:
        if phase.upid is None:
            return None
        curve = self._below(phase.upid)
        last = self.end_ns if phase.end_ns is None else phase.end_ns
        # Before the first of them nothing is known because nothing was there.
        return curve.highest(phase.begin_ns, last) or 0

    def _below(self, upid: int) -> steps.Steps:
        """The sum over all descendants of a process."""
        if upid not in self._sums_below:
            below: set[int] = set()
            waiting = list(self._children.get(upid, ()))
            while waiting:
                child = waiting.pop()
                if child not in below:
                    below.add(child)
                    waiting.extend(self._children.get(child, ()))
            curves = {each: curve for each, curve in self.curves().items() if each in below}
            self._sums_below[upid] = steps.total(curves)
        return self._sums_below[upid]

    @cached_property
    def _sums_below(self) -> dict[int, steps.Steps]:
        return {}

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        process = self["process"]
        for upid, parent in zip(process.column("upid"), process.column("parent_upid")):
            if parent is not None:
                children.setdefault(parent, []).append(upid)
        return children

    def _at(self, time: int) -> Table:
        process = self["process"]
        facts = {
            upid: rest
            for upid, *rest in zip(
                *(process.column(n) for n in ("upid", "tgid", "comm", "cmdline"))
            )
        }
        held = [
            (upid, amounts)
            for upid, curve in self.curves().items()
            for amounts in (curve.at(time),)
            if amounts is not None and amounts is not steps.NOTHING
        ]
        held.sort(key=lambda each: (each[1][0] is None, -(each[1][0] or 0), each[0]))
        known = [facts.get(upid, (None, None, None)) for upid, _ in held]
        columns: dict[str, tuple[str, list[Any]]] = {
            "upid": ("int64", [upid for upid, _ in held]),
            "tgid": ("int32", [tgid for tgid, _, _ in known]),
            "comm": ("string", [comm for _, comm, _ in known]),
            "cmdline": ("string", [cmdline for _, _, cmdline in known]),
        }
        for place, name in enumerate(_AMOUNTS):
            columns[name] = ("int64", [amounts[place] for _, amounts in held])
        return Table.of("at", columns)


def _short(command: str) -> str:
    program, _, rest = " ".join(command.split()).partition(" ")
    text = f"{os.path.basename(program) or program} {rest}".strip()
    return text if len(text) <= 48 else f"{text[:47]}…"
