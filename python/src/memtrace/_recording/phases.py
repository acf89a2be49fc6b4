"""Begins and ends of the table `mark`, put together."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Phase(NamedTuple):
    """A phase. One that never ended has no end."""

    upid: int | None
    tgid: int | None
    name: str
    begin_ns: int
    end_ns: int | None
    attributes: str | None


class Mark(NamedTuple):
    """What matters of a row of `mark`."""

    boot_ns: int
    upid: int | None
    tgid: int | None
    name: str
    kind: str | None
    span: int | None
    attributes: str | None


class Telling(NamedTuple):
    """What a process held at a time, as it measured itself."""

    boot_ns: int
    upid: int
    rss_bytes: int
    anon_bytes: int | None


def tellings(marks: list[Mark], phases: list[Phase]) -> list[Telling]:
    """What processes measured of themselves at their marks, in order of time."""
    told = []
    for mark in marks:
        if mark.upid is not None and mark.attributes and '"rss_bytes"' in mark.attributes:
            said = _members(mark.attributes)
            rss, anon = _bytes(said, "rss_bytes"), _bytes(said, "rss_anon_bytes")
            if rss:
                told.append(Telling(mark.boot_ns, mark.upid, rss, anon))
    for phase in phases:
        # Sections of `memtrace.peak` told both ends with the end, before marks did.
        if phase.upid is None or '"end_bytes"' not in (phase.attributes or ""):
            continue
        said = _members(phase.attributes)
        for time, name in ((phase.begin_ns, "begin_bytes"), (phase.end_ns, "end_bytes")):
            rss = _bytes(said, name)
            if rss and time is not None and "rss_bytes" not in said:
                told.append(Telling(time, phase.upid, rss, None))
    told.sort(key=lambda telling: telling.boot_ns)
    return told


def _members(attributes: str | None) -> dict[str, Any]:
    try:
        said = json.loads(attributes or "")
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _bytes(said: dict[str, Any], name: str) -> int | None:
    figure = said.get(name)
    return figure if type(figure) is int and figure >= 0 else None


def paired(marks: list[Mark]) -> list[Phase]:
    """The phases of marks in order of time, in the order in which they began.

    An end goes with the begin of its span in that process, and without a span with the
    newest open begin of its name there. An end without a begin is no phase.
    """
    phases: list[Phase] = []
    # Positions of phases that are open, by process.
    still_open: dict[Any, list[tuple[int | None, int]]] = {}
    for mark in marks:
        process = mark.tgid if mark.upid is None else ("upid", mark.upid)
        mine = still_open.setdefault(process, [])
        if mark.kind == "begin":
            mine.append((mark.span, len(phases)))
            phases.append(
                Phase(mark.upid, mark.tgid, mark.name, mark.boot_ns, None, mark.attributes)
            )
        elif mark.kind == "end":
            for place in range(len(mine) - 1, -1, -1):
                span, position = mine[place]
                is_mine = span == mark.span if mark.span else phases[position].name == mark.name
                if is_mine:
                    del mine[place]
                    begun = phases[position]
                    attributes = _merged(begun.attributes, mark.attributes)
                    phases[position] = begun._replace(end_ns=mark.boot_ns, attributes=attributes)
                    break
    return phases


def _merged(begin: str | None, end: str | None) -> str | None:
    """The attributes of both; those of the end win."""
    if begin is None or end is None:
        return end if begin is None else begin
    try:
        return json.dumps({**json.loads(begin), **json.loads(end)}, ensure_ascii=False)
    except (TypeError, ValueError):
        return end
