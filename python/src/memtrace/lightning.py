"""Steps of a Trainer of Lightning as phases.

``Trainer(..., callbacks=[memtrace.lightning.StepPhases()])``
"""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from ._marks import phase
from ._steps import Steps

__all__ = ["StepPhases"]


class StepPhases(Callback):  # type: ignore[misc]
    """Makes a phase of every batch of training, or every so many (`step_0`, `step_1`, ...), and of
    each validation."""

    def __init__(self, *, every: int = 1) -> None:
        self._steps = Steps(every)
        self._count = 0
        self._validation = phase("validation")

    def on_train_batch_start(self, *_: Any) -> None:
        self._steps.begin(self._count)
        self._count += 1

    def on_train_batch_end(self, *_: Any) -> None:
        self._steps.end()

    def on_validation_start(self, *_: Any) -> None:
        self._validation.__enter__()

    def on_validation_end(self, *_: Any) -> None:
        self._validation.__exit__(None)

    def on_exception(self, trainer: Any, module: Any, error: BaseException) -> None:
        self._steps.end(error)
        self._validation.__exit__(type(error))
