"""Memory as a step function: a row holds until the next row of the same process.

After its end a process holds nothing.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional

AMOUNTS = ("rss_bytes", "rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes", "swap_bytes")
Amounts = tuple[Optional[int], ...]
NOTHING: Amounts = (0,) * len(AMOUNTS)


def from_zero(amounts: list[int | None]) -> list[int | None]:
    """The kernel's per-CPU counters can read below zero for a moment; that counts as zero."""
    return [0 if amount is not None and amount < 0 else amount for amount in amounts]


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
    peaks: dict[int, int | None],
) -> dict[int, Steps]:
    """The curves by upid, of rows in order of time: (boot_ns, upid, source, amounts). `peaks`
    are the kernel's marks of the highest RSS, where they are no lower bounds."""
    found: dict[int, Steps] = {}
    for time, upid, source, amounts in rows:
        steps = found.setdefault(upid, Steps([], []))
        if source == "self":
            # Before its first row a process is not there.
            if not steps.times:
                continue
            measured = _measured(steps.held[-1], amounts, peaks.get(upid))
            if measured is None:
                continue
            amounts = measured
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


# The probe notes a smaller move only at the next snapshot.
_NEAR_BYTES = 1 << 20


def _measured(held: Amounts, said: Amounts, peak: int | None) -> Amounts | None:
    """What a process held by its own measurement of RSS and of its anonymous part; kinds that no
    longer add up to it are unknown. None for more than it can have held by the kernel's mark."""
    now, told = said[:2]
    if now is None or (peak is not None and now > peak + peak // 8):
        return None
    now = now if peak is None else min(now, peak)
    rss, anon, file, shmem, swap = held
    if told is not None:
        shared = None if file is None or shmem is None else file + shmem
        anon = min(told, now)
        is_as_it_was = _is_near(shared, now - anon)
    else:
        is_as_it_was = _is_near(rss, now)
        anon = anon if is_as_it_was else None
    if not is_as_it_was:
        file = shmem = None
    return now, anon, file, shmem, swap


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
