"""Draws a recording with matplotlib: memory over time, the phases, the devices."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..._errors import FindingsError
from . import devices, memory, phases

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..recording import Recording

_WIDTH_INCHES = 10.0
_DOTS_PER_INCH = 150


def figure(recording: Recording, top: int, by: str | None) -> Figure:
    """A figure with all there is to draw: memory over time, below it the phases and the GPUs."""
    import matplotlib.pyplot

    waterfall = _phases(recording)
    gpus = devices.curves(recording)
    heights = [5.0]
    if waterfall:
        heights.append(phases.height(waterfall))
    if gpus:
        heights.append(2.5)
    made: Figure
    made, axes = matplotlib.pyplot.subplots(
        len(heights),
        figsize=(_WIDTH_INCHES, sum(heights)),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    places = iter(axes[:, 0])
    memory.draw(recording, top, next(places), by)
    if waterfall:
        phases.draw(waterfall, next(places))
    if gpus:
        devices.draw(recording, gpus, next(places))
    return made


def save(recording: Recording, path: str | os.PathLike[str], top: int, by: str | None) -> None:
    """Writes memory over time to a file, in the format that its name says."""
    # No pyplot: it would keep the figure, and ask for a screen.
    from matplotlib.figure import Figure

    made = Figure(figsize=(_WIDTH_INCHES, 5), layout="constrained")
    memory.draw(recording, top, made.subplots(), by)
    made.savefig(path, dpi=_DOTS_PER_INCH)


def _phases(recording: Recording) -> list[phases.Bar]:
    try:
        return phases.bars(recording)
    except FindingsError as error:
        recording._note(f"phases are not drawn: {error}")
        return []
