"""Steps of a Trainer of Transformers as phases.

``Trainer(..., callbacks=[memtrace.transformers.StepPhases()])``
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from ._steps import Steps

__all__ = ["StepPhases"]


class StepPhases(TrainerCallback):  # type: ignore[misc]
    """Makes a phase of every step of the optimizer, or every so many: `step_0`, `step_1`, ..."""

    def __init__(self, *, every: int = 1) -> None:
        self._steps = Steps(every)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._steps.begin(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._steps.end()
