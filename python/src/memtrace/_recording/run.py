"""A run of many hosts, opened for reading: its recordings, and their tables as one."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._errors import FindingsError
from . import findings
from .clock import Moment
from .places import place_of
from .recording import Recording
from .table import Table, arrow

if TYPE_CHECKING:
    from .places import Place

_NAME = r"([A-Za-z0-9_][A-Za-z0-9._-]{0,127})\Z"
_RUN, _HOST, _REC = (re.compile(f"{key}={_NAME}") for key in ("run", "host", "rec"))


class Key(NamedTuple):
    """Which of the recordings of a run one is."""

    host: str
    rec: str
    """When it began, in UTC."""


def opened(path: str | os.PathLike[str]) -> Recording | Run:
    """The recording at a path or an address, or the run that is there."""
    place = place_of(path)
    if _REC.match(place.name):
        return Recording(place)
    names = place.names()
    if "run.json" not in names:
        runs = _named(names, _RUN)
        if runs:
            paths = ", ".join(f"{place}/run={run}" for run in runs)
            raise ValueError(f"{place} is a root of runs, and one is loaded at a time: {paths}")
        if any(map(_HOST.match, names)) or any(map(_REC.match, names)):
            return Run(place)
    if place.is_remote and not names:
        raise FileNotFoundError(_absent(place))
    return Recording(place)


def _absent(place: Place) -> str:
    """That there is nothing at an address, and what there is beside it."""
    place.check()
    told = f"there is nothing at {place}"
    above, _, name = str(place).rpartition("/")
    key = re.match(r"(run|host|rec)=", name)
    if key is None or above.endswith("/"):
        return told
    pattern = re.compile(f"{key[1]}={_NAME}")
    others = _named(place_of(above).names(), pattern)
    beside = ", ".join(f"{key[0]}{other}" for other in others) or f"no {key[0]}NAME"
    return f"{told}; {above} has {beside}"


def _named(names: Sequence[str], pattern: re.Pattern[str]) -> list[str]:
    """The names of which folders are, as in `run=NAME`."""
    return [match[1] for match in map(pattern.match, names) if match]


class Run(Mapping[Key, Recording]):
    """The recordings of a run by host and start, each opened when it is asked for.

    ``run["node1"]`` is that of a host that has one; ``run.read("role_mem", ["boot_ns", "name",
    "rss_bytes"])`` the rows of all.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        folders = place.names()
        hosts = {host: place.below(f"host={host}") for host in _named(folders, _HOST)}
        if not hosts:
            found = _HOST.match(place.name)
            hosts = {found[1] if found else "": place}
        listed = place.each(lambda folder: folder.names(), hosts.values())
        self._places = {
            Key(host, rec): folder.below(f"rec={rec}")
            for (host, folder), names in zip(hosts.items(), listed)
            for rec in _named(names, _REC)
        }
        self._opened: dict[Key, Recording] = {}

    @property
    def hosts(self) -> list[str]:
        """The names of its hosts."""
        return sorted({key.host for key in self})

    @property
    def problems(self) -> dict[Key, list[str]]:
        """What is missing or can't be read, by recording; see `Recording.problems`."""
        refused: dict[Key, Exception] = {}
        told = {key: recording.problems for key, recording in self._readable(refused)}
        told.update((key, [str(error)]) for key, error in refused.items())
        return {key: told[key] for key in sorted(told) if told[key]}

    def _readable(self, refused: dict[Key, Exception]) -> Iterator[tuple[Key, Recording]]:
        """Those that can be opened. Why the others can't goes to `refused`."""
        for key in self:
            try:
                recording = self[key]
            except (OSError, ValueError) as error:
                refused[key] = error
            else:
                yield key, recording

    def read(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> Table:
        """A table of all hosts as one, as `Recording.read` reads it of each, behind the columns
        `host` and `rec`. Seconds and ``+83.2s`` count from each recording's own begin; a date and
        time is the same for all. What a recording does not have is null, or no row; of one that
        can't be read there is none, and `problems` says so.
        """
        pa = arrow()
        frames = []
        refused: dict[Key, Exception] = {}
        for key, recording in self._readable(refused):
            if name not in findings.NAMES and name not in recording.tables:
                continue
            try:
                frame = recording._chosen(name, columns, since, until).to_arrow()
            except FindingsError as error:
                recording._note(str(error))
                refused[key] = error
                continue
            for place, column in enumerate(Key._fields):
                values = pa.array([key[place]] * len(frame), pa.string())
                frame = frame.add_column(place, column, values)
            frames.append(frame)
        if not frames:
            why = next(iter(refused.values()), None)
            raise why or KeyError(f"no recording of {self._place} has a table {name!r}")
        table = Table(name, pa.concat_tables(frames, promote_options="default"))
        table.check_columns(columns)
        return table

    def log_to(
        self,
        writer: Any,
        *,
        by: str | None = None,
        every: float | str | datetime.timedelta = "1s",
        prefix: str = "memtrace",
    ) -> int:
        """Logs each recording as `Recording.log_to` does, below the name of its host."""
        return sum(
            recording.log_to(writer, by=by, every=every, prefix=f"{prefix}/{key.host}")
            for key, recording in self.items()
        )

    def __getitem__(self, key: Key | tuple[str, str] | str) -> Recording:
        if isinstance(key, str):
            key = self._only(key)
        key = Key(*key)
        if key not in self._opened:
            self._opened[key] = Recording(self._places[key])
        return self._opened[key]

    def _only(self, host: str) -> Key:
        of_host = [key for key in self if key.host == host]
        if len(of_host) != 1:
            told = ", ".join(map(repr, map(tuple, of_host))) or f"hosts {', '.join(self.hosts)}"
            raise KeyError(f"host {host!r} has {len(of_host)} recordings; there are: {told}")
        return of_host[0]

    def __iter__(self) -> Iterator[Key]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places or key in self.hosts

    def __repr__(self) -> str:
        return f"<Run {self._place.name}: {len(self)} recordings of {', '.join(self.hosts)}>"
