"""Memory over time, stacked by role (what is held) or process (RSS), with the phases as bands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._errors import FindingsError
from ..clock import SECOND
from ..steps import Steps, total
from . import bounds
from .units import plain, unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..recording import Recording

_TICKS = 600
_HELD, _RSS = "memory held", "sum of RSS"
_REST = "kernel memory, and others"
# A recording may hold a hundred thousand phases: so many are shaded, and of their names so many
# have room beside each other.
_SHADED = 400
_NAMES_ACROSS = 70


def draw(recording: Recording, top: int, ax: Axes, by: str | None) -> Axes:
    """Stacks the `top` largest and the others, and shades phases. By role where the report's
    findings are saved and nobody asked for anything else."""
    start, end = recording.start_ns, recording.end_ns
    peak = recording.peak()
    what, curves = _curves(recording, by)
    is_held = what == _HELD and peak.held_bytes is not None
    highest = (peak.held_bytes or 0) if is_held else peak.rss_bytes
    by_size = sorted(curves, key=lambda each: -(each[1].highest(start, end) or 0))
    per, unit_name = unit(highest)
    layers = [(plain(label), curve) for label, curve in by_size[:top]]
    if by_size[top:]:
        others = total(dict(enumerate(curve for _, curve in by_size[top:])))
        count = len(by_size[top:])
        layers.append((f"{count} others" if count > 1 else "1 other", others))
    outline = total(dict(enumerate(curve for _, curve in layers)))
    width = max((end - start) // _TICKS, 1)
    # The peak keeps its height, and so does each layer between two ticks.
    ticks = {*range(start, end + 1, width), peak.boot_ns}
    for curve in (outline, *(curve for _, curve in layers)):
        ticks.update(time for time in _extremes(curve, width) if start <= time <= end)
    instants = sorted(ticks)
    seconds = [(tick - start) / SECOND for tick in instants]
    colors = [f"C{number % 10}" for number in range(top)] + ["0.75"]
    ax.stackplot(
        seconds,
        [_heights(curve, instants, per) for _, curve in layers],
        labels=[label for label, _ in layers],
        colors=colors[: len(layers)],
        # A row holds until the next one.
        step="post",
        linewidth=0,
    )
    at = (peak.boot_ns - start) / SECOND
    ax.plot([at], [highest / per], "kv", markersize=5)
    ax.annotate(
        f"peak {highest / per:.1f} {unit_name}",
        (at, highest / per),
        textcoords="offset points",
        xytext=(4, 6),
        ha="left" if at < (end - start) / SECOND * 0.8 else "right",
        fontsize="small",
    )
    has_names = _shade_phases(recording, ax)
    ax.set(xlabel="seconds since the start", ylabel=f"{what}, {unit_name}")
    ax.set_xlim(0, (end - start) / SECOND)
    # Room for the names of phases where there are any, and for a limit that is not far.
    most = max(highest, outline.highest(start, end) or 0)
    room = 1.45 if has_names else 1.15
    limit = bounds.limit_bytes(recording)
    near = limit * 1.05 if limit is not None and limit <= most * 1.6 else 0
    ax.set_ylim(0, max(most * room, near) / per)
    bounds.draw(recording, ax, limit, per, unit_name)
    # Above the names of the phases; the layout keeps it inside of the figure.
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, fontsize="small", frameon=False)
    return ax


def _extremes(curve: Steps, width: int) -> set[int]:
    """The times at which a curve is highest and lowest in each stretch of so many ns."""
    highest: dict[int, tuple[int, int]] = {}
    lowest: dict[int, tuple[int, int]] = {}
    for time, (rss, *_) in zip(curve.times, curve.held):
        stretch, held = time // width, rss or 0
        if stretch not in highest or held > highest[stretch][0]:
            highest[stretch] = held, time
        if stretch not in lowest or held < lowest[stretch][0]:
            lowest[stretch] = held, time
    return {time for each in (highest, lowest) for _, time in each.values()}


def _heights(curve: Steps, instants: list[int], per: int) -> list[float]:
    return [((curve.at(instant) or (0,))[0] or 0) / per for instant in instants]


def _curves(recording: Recording, by: str | None) -> tuple[str, list[tuple[str, Steps]]]:
    if by == "process":
        return _RSS, _processes(recording)
    try:
        return _HELD, _roles(recording)
    except FindingsError as error:
        if by == "role":
            raise
        recording._note(f"memory is drawn by process: {error}")
        return _RSS, _processes(recording)


def _processes(recording: Recording) -> list[tuple[str, Steps]]:
    names = recording.names()
    return [(names.get(upid, str(upid)), curve) for upid, curve in recording.curves().items()]


def _roles(recording: Recording) -> list[tuple[str, Steps]]:
    """What each role holds, and what is held and of no role."""
    curves: dict[str, Steps] = {}
    rows = list(zip(*map(recording["role_mem"].column, ("name", "boot_ns", "held_bytes"))))
    for name, time, held in rows:
        curve = curves.setdefault(name, Steps([], []))
        curve.times.append(time)
        curve.held.append((held,))
    rest = Steps([], [])
    for time, held in zip(*map(recording["held"].column, ("boot_ns", "held_bytes"))):
        known = sum((curve.at(time) or (0,))[0] or 0 for curve in curves.values())
        rest.times.append(time)
        rest.held.append((max(held - known, 0),))
    return [*curves.items(), (_REST, rest)]


def _shade_phases(recording: Recording, ax: Any) -> bool:
    """Shades the longest phases, and names those of them that leave each other room; says whether
    there are any."""
    try:
        phases = recording.phases()
    except FindingsError as error:
        recording._note(f"phases are not drawn: {error}")
        return False
    spans = sorted(
        (
            (name, begin, end)
            for name, begin, end, kind in zip(
                *map(phases.column, ("name", "begin_boot_ns", "end_boot_ns", "kind"))
            )
            # An instant is no stretch, and of an end alone nobody knows the begin.
            if begin is not None and kind != "instant"
        ),
        key=lambda span: (span[1] - span[2], span[1]),
    )
    apart = (recording.end_ns - recording.start_ns) / _NAMES_ACROSS
    named: list[int] = []
    for name, begin, end in spans[:_SHADED]:
        left, right = ((time - recording.start_ns) / SECOND for time in (begin, end))
        ax.axvspan(left, right, color="0.93", linewidth=0, zorder=0)
        if any(abs(begin - other) < apart for other in named):
            continue
        named.append(begin)
        ax.axvline(left, color="0.6", linewidth=0.6, linestyle=":", zorder=0)
        ax.annotate(
            plain(name),
            (left, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, -3),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize="x-small",
            color="0.35",
        )
    return bool(named)
