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
