"""What is used of each GPU over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..clock import SECOND
from .units import plain, unit

if TYPE_CHECKING:
    from ..recording import Recording

_NAMED = 16


class Curve(NamedTuple):
    """One device: what was used from each time on, and what there is of it."""

    number: int | None
    label: str
    times: list[int]
    used: list[int | None]
    total: int | None


def curves(recording: Recording) -> list[Curve]:
    """The devices of a recording; instances of a divided device aside, which are part of it."""
    table = recording._table_or_none("gpu_device")
    if table is None:
        return []
    columns = ("device", "device_index", "name", "parent_device", "boot_ns", "used_bytes")
    found: dict[str, Curve] = {}
    for device, index, name, parent, time, used, total in zip(
        *map(table.column, (*columns, "total_bytes"))
    ):
        if parent is not None:
            continue
        which = device if index is None else f"GPU {index}"
        label = f"{which} {name}" if name else which
        curve = found.setdefault(device, Curve(index, label, [], [], total))
        curve.times.append(time)
        curve.used.append(used)
    known = (curve for curve in found.values() if any(used is not None for used in curve.used))
    # Those without a number last.
    return sorted(known, key=lambda curve: (curve.number is None, curve.number or 0, curve.label))


def draw(recording: Recording, devices: list[Curve], ax: Any) -> Any:
    """A line for each device, and a dashed one for what there is of the largest."""
    start, end = recording.start_ns, recording.end_ns
    totals = [curve.total for curve in devices if curve.total is not None]
    highest = max(used or 0 for curve in devices for used in curve.used)
    per, name = unit(max([highest, *totals]))
    for place, curve in enumerate(devices):
        seconds = [(time - start) / SECOND for time in (*curve.times, end)]
        values = [float("nan") if used is None else used / per for used in curve.used]
        label = plain(curve.label) if place < _NAMED else None
        ax.plot(seconds, [*values, values[-1]], drawstyle="steps-post", label=label)
    if totals:
        ax.axhline(max(totals) / per, color="0.4", linestyle="--", linewidth=0.8)
        ax.annotate(
            f"{max(totals) / per:.0f} {name} in all",
            (1, max(totals) / per),
            xycoords=("axes fraction", "data"),
            xytext=(-4, -4),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize="x-small",
        )
    ax.set(xlabel="seconds since the start", ylabel=f"used on each GPU, {name}")
    ax.set_xlim(0, max((end - start) / SECOND, 1e-9))
    ax.set_ylim(0, max([highest, *totals]) / per * 1.1 or 1)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize="small", frameon=False)
    return ax
