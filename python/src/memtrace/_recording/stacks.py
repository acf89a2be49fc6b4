"""Who touched the memory that is still resident: `growth_site` with the frames of `stack`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from . import processes
from .processes import Process
from .table import Table

AMOUNTS = (
    "sample_count",
    "grown_bytes",
    "grown_error_bytes",
    "resident_bytes",
    "live_bytes",
    "kept_bytes",
    "copied_bytes",
    "shared_bytes",
    "returned_bytes",
)
_COLUMNS = (
    *processes.COLUMNS,
    ("stack_id", "int64"),
    *((name, "int64") for name in AMOUNTS),
    ("python", "string"),
    ("native", "string"),
    ("frames", "string"),
)
# Rows come this much later than what they say.
_LATE_NS = 1_000_000_000
# A program that ends often frees all it has: what it held is what it held before that.
_LAST_NS = 3_000_000_000

Sums = dict[int, tuple[Any, ...]]


def table(
    sites: Table | None,
    frames: Table | None,
    known: dict[int, Process],
    ends: dict[int, int],
    until: int | None,
) -> Table:
    """What each process that lives at `until` touched anew at each stack, as it stood then; without
    that at the end, and of a process that has ended at the moment in its last three seconds at
    which most was resident."""
    held = {} if sites is None else _held(sites, {} if until is not None else ends, until)
    if until is not None:
        held = {upid: sums for upid, sums in held.items() if ends.get(upid, until) >= until}
    stacks = _stacks(frames, {stack for sums in held.values() for stack in sums})
    rows = []
    for upid, sums in held.items():
        who = known.get(upid, processes.unknown(upid))[: len(processes.COLUMNS)]
        for stack, amounts in sums.items():
            rows.append((*who, stack, *amounts, *stacks.get(stack, (None, None, None))))
    place = [name for name, _ in _COLUMNS].index("resident_bytes")
    rows.sort(key=lambda row: -row[place])
    columns = list(zip(*rows)) or [()] * len(_COLUMNS)
    return Table.of(
        "stacks", {name: (kind, list(values)) for (name, kind), values in zip(_COLUMNS, columns)}
    )


def _held(sites: Table, ends: dict[int, int], until: int | None) -> dict[int, Sums]:
    rows = zip(*map(sites.column, ("boot_ns", "upid", "stack_id", *AMOUNTS)))
    now: dict[int, Sums] = {}
    most: dict[int, tuple[int, Sums]] = {}
    times: dict[int, int] = {}

    def note(upid: int) -> None:
        resident = _resident(now[upid])
        if upid not in most or resident >= most[upid][0]:
            most[upid] = resident, dict(now[upid])

    for time, upid, stack, *amounts in rows:
        if until is not None and time > until + _LATE_NS:
            continue
        is_last = upid in ends and time >= ends[upid] - _LAST_NS
        if is_last and upid in now and time != times[upid]:
            note(upid)
        times[upid] = time
        now.setdefault(upid, {})[stack] = tuple(amounts)
    for upid in ends.keys() & now.keys():
        note(upid)
    return {upid: most[upid][1] if upid in most else sums for upid, sums in now.items()}


def _resident(sums: Sums) -> int:
    place = AMOUNTS.index("resident_bytes")
    return sum(amounts[place] for amounts in sums.values())


def _stacks(frames: Table | None, wanted: set[int]) -> dict[int, tuple[str | None, ...]]:
    """The innermost frame of Python, the innermost one of machine code, and all of them, the
    outermost first."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    names = ("stack_id", "depth", "kind", "function", "file", "line", "address")
    for stack, depth, kind, *frame in () if frames is None else zip(*map(frames.column, names)):
        if stack in wanted:
            found.setdefault(stack, []).append((depth, kind, _frame(kind, *frame)))
    return {stack: _words(sorted(each)) for stack, each in found.items()}


def _words(frames: Iterable[tuple[int, str, str]]) -> tuple[str | None, ...]:
    named = [(kind, name) for _, kind, name in frames]
    innermost = [
        next((name for of, name in named if of == kind), None) for kind in ("python", "native")
    ]
    return (*innermost, ";".join(name.replace(";", ":") for _, name in reversed(named)))


def _frame(
    kind: str, function: str | None, file: str | None, line: int | None, address: int | None
) -> str:
    if kind == "python":
        return f"{file or ''}{'' if line is None else f':{line}'} {function or ''}"
    library = os.path.basename(file or "")
    if function is not None:
        return f"{function} ({library})"
    return f"{library}+{address:#x}" if library and address is not None else "code of no file"
