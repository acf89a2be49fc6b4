"""Steps of Ray Train as phases: what a worker does until its next report is one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .._steps import Steps


def step_phases(
    train_loop: Callable[..., Any], *, every: int = 1, name: str = "step"
) -> Callable[..., Any]:
    """The loop of a trainer, in which all until each call of ``ray.train.report`` is a phase.

    ``TorchTrainer(memtrace.ray.step_phases(train_loop), ...)`` makes `step_0`, `step_1`, ... in
    each worker. A loop that took `report` out of `ray.train` when it was imported has one phase.
    """

    @functools.wraps(train_loop)
    def loop(*args: Any, **kwargs: Any) -> Any:
        from ray import train

        steps, count, report = Steps(every, name), 0, train.report

        def reported(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            result = report(*args, **kwargs)
            count += 1
            steps.begin(count)
            return result

        steps.begin(count)
        train.report = reported
        try:
            return train_loop(*args, **kwargs)
        finally:
            train.report = report
            steps.end()

    return loop
