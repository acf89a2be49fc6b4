"""Memory as a step function: a row holds until the next row of the same process.

After its end a process holds nothing. What a recorded command held before its exec is left
out: until then it is a copy of memtrace.
"""

from __future__ import annotations

import bisect
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


def curves(
    rows: Iterator[tuple[int, int, str | None, Amounts]],
    ends: dict[int, int],
    command_upid: int | None,
) -> dict[int, Steps]:
    """The curves by upid, of rows in order of time: (boot_ns, upid, source, amounts)."""
    found: dict[int, Steps] = {}
    for time, upid, source, amounts in rows:
        steps = found.setdefault(upid, Steps([], []))
        if upid == command_upid and source == "exec":
            command_upid = None
            steps.times.clear()
            steps.held.clear()
        if time < ends.get(upid, time + 1):
            if steps.times and steps.times[-1] == time:
                steps.held[-1] = amounts
            else:
                steps.times.append(time)
                steps.held.append(amounts)
    for upid, end in ends.items():
        if upid in found and found[upid].times:
            found[upid].times.append(end)
            found[upid].held.append(NOTHING)
    return {upid: steps for upid, steps in found.items() if steps.times}


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
