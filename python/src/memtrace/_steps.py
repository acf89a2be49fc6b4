"""Steps of a loop as phases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from ._marks import phase

T = TypeVar("T")


def mark_steps(
    iterable: Iterable[T], /, *, every: int = 1, name: str = "step", start: int = 0
) -> Iterator[T]:
    """The items of `iterable`; what the loop does with each is a phase: `step_0`, `step_1`, ...

    ``for batch in memtrace.mark_steps(loader, every=10):`` makes a phase of every tenth step,
    from the first on: a long run needs no more to show what each step keeps. A phase lasts
    from when its item is there until the next is asked for, or the loop is left. Counting
    begins at `start`. `ValueError` when `every` is below 1.
    """
    if every < 1:
        raise ValueError(f"every must be 1 or more, not {every}")
    return _steps(iterable, every, name, start)


def _steps(iterable: Iterable[T], every: int, name: str, start: int) -> Iterator[T]:
    for number, item in enumerate(iterable, start):
        if (number - start) % every:
            yield item
        else:
            with phase(f"{name}_{number}"):
                yield item
