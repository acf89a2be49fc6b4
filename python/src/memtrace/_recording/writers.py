"""Memory per step, or over time, for what people log their runs to: W&B, MLflow, TensorBoard.

None of them is imported: a writer is known by its methods.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .recording import Recording

_GIB = 1 << 30
# Columns of a phase, by the names of their metrics. Of several processes in one step the highest.
_OF_STEP = {
    "peak_gib": "held_peak_bytes",
    "held_gib": "held_end_bytes",
    "process_peak_gib": "exact_peak_bytes",
    "gpu_peak_gib": "gpu_peak_bytes",
}


class Point(NamedTuple):
    """The metrics of one step."""

    step: int
    wall_s: float
    """When it ended, on the wall clock."""
    metrics: dict[str, float]


def by_step(recording: Recording) -> list[Point]:
    """What each numbered phase took, by the step that it has."""
    phases = recording.phases()
    columns = ("name", "step", "end_boot_ns", *_OF_STEP.values())
    points: dict[int, Point] = {}
    for name, step, end, *amounts in zip(*map(phases.column, columns)):
        if step is None or end is None:
            continue
        wall = recording.wall_ns(end) / 1e9
        point = points.setdefault(step, Point(step, wall, {}))
        points[step] = point = point._replace(wall_s=max(point.wall_s, wall))
        label = stage(name, step)
        for metric, amount in zip(_OF_STEP, amounts):
            if amount is not None:
                key = f"{label}/{metric}"
                point.metrics[key] = max(point.metrics.get(key, 0.0), amount / _GIB)
    return [points[step] for step in sorted(points)]


def stage(name: str, step: int) -> str:
    """What `step_40_rollout` is a metric of: `step_rollout`.

    Of several numbers the one after "step" or a word like it is left out, else the first, as in the
    report.
    """
    number = rf"(?<!\d)0*{step}(?![\da-z])"
    for before in (r"(?<![a-z])(step|iter|iteration|batch)[^a-z\d]*", r"()[ _-]?"):
        label, count = re.subn(before + number, r"\1", name, count=1, flags=re.IGNORECASE)
        if count:
            return label or "step"
    return name


def over_time(recording: Recording, every_ns: int) -> Iterator[Point]:
    """What all processes held, every page once; steps count the periods from the start."""
    held = recording["held"]
    rows = [row for row in zip(*map(held.column, ("boot_ns", "held_bytes"))) if row[1] is not None]
    last, place = 0, 0
    for number, begin in enumerate(range(recording.start_ns, recording.end_ns, every_ns)):
        highest, end = last, min(begin + every_ns, recording.end_ns)
        # The last period has the row of the end.
        while place < len(rows) and (rows[place][0] < end or end == recording.end_ns):
            last = rows[place][1]
            highest = max(highest, last)
            place += 1
        metrics = {"held_gib": last / _GIB, "peak_gib": highest / _GIB}
        yield Point(number, recording.wall_ns(end) / 1e9, metrics)


def sink(writer: Any, prefix: str) -> Callable[[Point], None]:
    """How a writer takes a point."""

    def named(point: Point) -> dict[str, float]:
        return {f"{prefix}/{name}": value for name, value in point.metrics.items()}

    if hasattr(writer, "add_scalar"):

        def add_scalars(point: Point) -> None:
            for name, value in named(point).items():
                writer.add_scalar(name, value, point.step, walltime=point.wall_s)

        return add_scalars
    if hasattr(writer, "log_metrics"):
        return lambda point: writer.log_metrics(named(point), step=point.step)
    if hasattr(writer, "define_metric"):
        # The run's own steps are past these by now, and it takes none from before.
        step = f"{prefix}/step"
        writer.define_metric(f"{prefix}/*", step_metric=step)
        return lambda point: writer.log({**named(point), step: point.step})
    raise TypeError(
        f"{writer!r} is no writer: it has neither add_scalar (TensorBoard's SummaryWriter), "
        "log_metrics (mlflow) nor define_metric (a run of wandb)"
    )
