"""The phases as a waterfall: what all processes held at the begin of each, and at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .units import change, plain, unit

if TYPE_CHECKING:
    from ..recording import Recording

# Bars in one picture: more leave each other no room.
_SHOWN = 30


class Bar(NamedTuple):
    """One phase: what all processes held, and what came into use on GPUs, in bytes."""

    begin_ns: int
    name: str
    begin: int
    end: int
    peak: int | None
    gpu_change: int | None


def bars(recording: Recording) -> list[Bar]:
    """The phases that changed most, in the order in which they began."""
    table = recording.phases()
    names = ("begin_boot_ns", "name", "kind", "process_name")
    amounts = ("held_begin_bytes", "held_end_bytes", "held_peak_bytes")
    on_gpus = ("gpu_begin_bytes", "gpu_end_bytes")
    found = []
    for begun, name, kind, process, begin, end, peak, gpu_begin, gpu_end in zip(
        *map(table.column, (*names, *amounts, *on_gpus))
    ):
        # Of an end alone nobody knows the begin, and an instant changes nothing.
        if None in (begun, begin, end) or kind == "instant":
            continue
        label = f"{name}, {process}" if process else name
        gpu_change = None if None in (gpu_begin, gpu_end) else gpu_end - gpu_begin
        found.append(Bar(begun, label, begin, end, peak, gpu_change))
    found.sort(key=lambda bar: -max(abs(bar.end - bar.begin), abs(bar.gpu_change or 0)))
    return sorted(found[:_SHOWN], key=lambda bar: bar.begin_ns)


def height(waterfall: list[Bar]) -> float:
    """How high the picture is, in inches."""
    return 1.0 + 0.22 * len(waterfall)


def draw(waterfall: list[Bar], ax: Any) -> Any:
    """A bar for each phase, from what was held at its begin to what was at its end."""
    highest = max(max(bar.begin, bar.end, bar.peak or 0) for bar in waterfall)
    per, unit_name = unit(highest)
    for row, bar in enumerate(waterfall):
        grown = bar.end - bar.begin
        low, color = min(bar.begin, bar.end), "C1" if grown >= 0 else "C2"
        ax.barh(row, low / per, color="0.92", height=0.8)
        ax.barh(row, abs(grown) / per, left=low / per, color=color, height=0.8)
        if bar.peak is not None:
            ax.plot([bar.peak / per] * 2, [row - 0.4, row + 0.4], color="black", linewidth=1)
        on_gpus = f", GPU {change(bar.gpu_change)}" if bar.gpu_change else ""
        ax.annotate(
            change(grown) + on_gpus,
            (1.01, row),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
        )
    names = [plain(bar.name) for bar in waterfall]
    ax.set_yticks(range(len(waterfall)), names, fontsize="small")
    ax.invert_yaxis()
    ax.set_xlim(0, highest / per * 1.02)
    ax.set(xlabel=f"memory held, {unit_name}: from start to end of each phase; | its highest")
    return ax
