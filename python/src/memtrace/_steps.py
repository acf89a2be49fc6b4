"""Steps of a loop as phases."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

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
    return _steps(iterable, Steps(every, name, start), start)


class Steps:
    """The steps of a loop that somebody else runs: its callbacks say when one begins and ends."""

    def __init__(self, every: int = 1, name: str = "step", start: int = 0) -> None:
        if every < 1:
            raise ValueError(f"every must be 1 or more, not {every}")
        self._every, self._name, self._start = every, name, start
        self._open: phase | None = None

    def begin(self, number: int) -> None:
        """Step `number` begins. One that never ended does so now."""
        self.end()
        if (number - self._start) % self._every == 0:
            self._open = phase(f"{self._name}_{number}")
            self._open.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """The step ends, if one goes on."""
        step, self._open = self._open, None
        if step is not None:
            step.__exit__(None if error is None else type(error))


_LOGGED = "_memtrace_step"


def begins(construct: Callable[..., None]) -> Callable[..., None]:
    """The constructor of a log to which a trainer writes as a step ends: the first step begins."""

    @functools.wraps(construct)
    def constructed(self: Any, /, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        setattr(self, _LOGGED, (None, phase("step").__enter__()))

    return constructed


def ends(log: Callable[..., T]) -> Callable[..., T]:
    """The method `log(data, step)` of such a log: a step ends, has its number, and the next begins.

    What is logged of a step that has ended, as of a validation, is part of the next one.
    """
    parameters = inspect.signature(log)

    @functools.wraps(log)
    def logged(self: Any, /, *args: Any, **kwargs: Any) -> T:
        returned = log(self, *args, **kwargs)
        number = parameters.bind(self, *args, **kwargs).arguments.get("step")
        last, step = getattr(self, _LOGGED, (number, None))
        if step is not None and number != last:
            step.set(step=number)
            step.__exit__(None)
            setattr(self, _LOGGED, (number, phase("step").__enter__()))
        return returned

    return logged


def _steps(iterable: Iterable[T], steps: Steps, start: int) -> Iterator[T]:
    for number, item in enumerate(iterable, start):
        steps.begin(number)
        try:
            yield item
        except BaseException as error:
            steps.end(error)
            raise
        steps.end()
