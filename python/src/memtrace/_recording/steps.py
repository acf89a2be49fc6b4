"""Memory as a step function: a row holds until the next row of the same process.

After its end a process holds nothing.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

AMOUNTS = ("rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "swap_bytes")
Amounts = tuple[Optional[int], ...]
NOTHING: Amounts = (0,) * len(AMOUNTS)


class Steps(NamedTuple):
    """The curve of one process: times in order, and what it held from each on."""

    times: list[int]
    held: list[Amounts]

    def at(self, time: int) -> Amounts | None:
        """What it held at a time; None before its first row."""
        row = bisect.bisect_right(self.times, time) - 1
        return self.held[row] if row >= 0 else None

    def highest(self, begin: int, end: int) -> int | None:
        """The highest known RSS from `begin` until and with `end`; None when none is known."""
        first = max(bisect.bisect_right(self.times, begin) - 1, 0)
        last = bisect.bisect_right(self.times, end)
        return max((rss for rss, *_ in self.held[first:last] if rss is not None), default=None)


class Telling(NamedTuple):
    """What a process held at a time, as it measured itself."""

    boot_ns: int
    upid: int
    rss_bytes: int
    anon_bytes: int | None


def tellings(marks: Iterator[tuple[int, int | None, str | None]]) -> list[Telling]:
    """What processes measured of themselves at their marks: (boot_ns, upid, attributes)."""
    told = []
    for time, upid, attributes in marks:
        if upid is not None and attributes and '"rss_bytes"' in attributes:
            said = _members(attributes)
            rss, anon = _bytes(said, "rss_bytes"), _bytes(said, "rss_anon_bytes")
            if rss:
                told.append(Telling(time, upid, rss, anon))
    return told


def _members(attributes: str) -> dict[str, Any]:
    try:
        said = json.loads(attributes)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _bytes(said: dict[str, Any], name: str) -> int | None:
    figure = said.get(name)
    return figure if type(figure) is int and figure >= 0 else None


def curves(
    rows: Iterator[tuple[int, int, Amounts]],
    ends: dict[int, int],
    told: dict[int, list[Telling]],
) -> dict[int, Steps]:
    """The curves by upid, of rows in order of time: (boot_ns, upid, amounts). What a
    process told of itself counts as a row of its time."""
    found: dict[int, Steps] = {}
    for time, upid, amounts in rows:
        steps = found.setdefault(upid, Steps([], []))
        if time < ends.get(upid, time + 1):
            if steps.times and steps.times[-1] == time:
                steps.held[-1] = amounts
            else:
                steps.times.append(time)
                steps.held.append(amounts)
    for upid, tellings in told.items():
        if upid in found:
            lasting = [each for each in tellings if each.boot_ns < ends.get(upid, each.boot_ns + 1)]
            found[upid] = _with(found[upid], lasting)
    for upid, end in ends.items():
        if upid in found and found[upid].times:
            found[upid].times.append(end)
            found[upid].held.append(NOTHING)
    return {upid: steps for upid, steps in found.items() if steps.times}


# The probe notes a smaller move only at the next snapshot.
_NEAR_BYTES = 1 << 20


def _with(steps: Steps, tellings: list[Telling]) -> Steps:
    """A curve with what its process told, but for before its first row."""
    both = Steps([], [])
    row = 0
    for telling in tellings:
        while row < len(steps.times) and steps.times[row] <= telling.boot_ns:
            both.times.append(steps.times[row])
            both.held.append(steps.held[row])
            row += 1
        if both.times:
            amounts = _measured(both.held[-1], telling)
            if both.times[-1] == telling.boot_ns:
                both.held[-1] = amounts
            else:
                both.times.append(telling.boot_ns)
                both.held.append(amounts)
    both.times.extend(steps.times[row:])
    both.held.extend(steps.held[row:])
    return both


def _measured(held: Amounts, telling: Telling) -> Amounts:
    """What it held with RSS as it told it; kinds that no longer add up to it are unknown."""
    rss, anon, file, shmem, swap = held
    told = telling.anon_bytes
    if told is not None:
        shared = None if file is None or shmem is None else file + shmem
        is_as_it_was = _is_near(shared, telling.rss_bytes - told)
        anon = told
    else:
        is_as_it_was = _is_near(rss, telling.rss_bytes)
        anon = anon if is_as_it_was else None
    if not is_as_it_was:
        file = shmem = None
    return telling.rss_bytes, anon, file, shmem, swap


def _is_near(known: int | None, other: int) -> bool:
    return known is not None and abs(known - other) <= _NEAR_BYTES


def total(curves: dict[int, Steps]) -> Steps:
    """The sum over all processes, RSS only; an unknown amount counts as nothing."""
    changes: list[tuple[int, int]] = []
    for steps in curves.values():
        before = 0
        for time, (rss, *_) in zip(steps.times, steps.held):
            changes.append((time, (rss or 0) - before))
            before = rss or 0
    changes.sort()
    summed, now = Steps([], []), 0
    for time, change in changes:
        now += change
        # Rows of one time belong together: a snapshot reads all processes at once.
        if summed.times and summed.times[-1] == time:
            summed.held[-1] = (now,)
        else:
            summed.times.append(time)
            summed.held.append((now,))
    return summed


def resampled(steps: Steps, ticks: range) -> Iterator[tuple[int, Amounts, int | None]]:
    """What a process held at each tick of its life and at the first after it, with the highest
    RSS since the tick before."""
    first = bisect.bisect_left(ticks, steps.times[0])
    row, has_ended = -1, False
    for tick in ticks[first:]:
        highest: int | None = None
        if row >= 0:
            highest = steps.held[row][0]
        while row + 1 < len(steps.times) and steps.times[row + 1] <= tick:
            row += 1
            rss: Any = steps.held[row][0]
            highest = rss if highest is None else max(highest, rss or 0)
        if has_ended:
            return
        has_ended = row == len(steps.times) - 1 and steps.held[row] is NOTHING
        yield tick, steps.held[row], highest
