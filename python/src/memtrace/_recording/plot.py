"""Draws a recording with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .clock import SECOND

if TYPE_CHECKING:
    from .recording import Recording

GIB = 1 << 30
MIB = 1 << 20
_TICKS = 600
# A recording may hold a hundred thousand phases: so many are shaded, and of their names so many
# have room beside each other.
_SHADED = 400
_NAMES_ACROSS = 70


def plot(recording: Recording, top: int, ax: Any) -> Any:
    """Stacks the RSS of the `top` largest processes and of the others, and shades phases."""
    if ax is None:
        import matplotlib.pyplot

        _, ax = matplotlib.pyplot.subplots(figsize=(10, 5), layout="constrained")
    start, end = recording.start_ns, recording.end_ns
    ticks = range(start, end + 1, max((end - start) // _TICKS, 1))
    curves = recording.curves()
    by_size = sorted(curves, key=lambda upid: -(curves[upid].highest(start, end) or 0))
    unit, unit_name = (GIB, "GiB") if recording.peak().rss_bytes >= GIB else (MIB, "MiB")

    def series(upids: list[int]) -> list[float]:
        held = ([curves[upid].at(tick) or (0,) for upid in upids] for tick in ticks)
        return [sum(amounts[0] or 0 for amounts in each) / unit for each in held]

    names = recording.names()
    layers = [(names.get(upid, str(upid)), series([upid])) for upid in by_size[:top]]
    if by_size[top:]:
        layers.append((f"{len(by_size) - top} others", series(by_size[top:])))
    seconds = [(tick - start) / SECOND for tick in ticks]
    colors = [f"C{number % 10}" for number in range(top)] + ["0.75"]
    ax.stackplot(
        seconds,
        [values for _, values in layers],
        labels=[label for label, _ in layers],
        colors=colors[: len(layers)],
        # A row holds until the next one.
        step="post",
        linewidth=0,
    )
    highest = recording.peak()
    at = (highest.boot_ns - start) / SECOND
    ax.plot([at], [highest.rss_bytes / unit], "kv", markersize=5)
    ax.annotate(
        f"peak {highest.rss_bytes / unit:.1f} {unit_name}",
        (at, highest.rss_bytes / unit),
        textcoords="offset points",
        xytext=(4, 6),
        fontsize="small",
    )
    _shade_phases(recording, ax)
    ax.set(xlabel="seconds since the start", ylabel=f"sum of RSS, {unit_name}")
    ax.set_xlim(0, (end - start) / SECOND)
    # Room for the names of the phases.
    ax.set_ylim(0, highest.rss_bytes / unit * 1.45)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize="small")
    return ax


def _shade_phases(recording: Recording, ax: Any) -> None:
    """Shades the longest phases, and names those of them that leave each other room."""
    phases = recording.phases()
    ends = (recording.end_ns if end is None else end for end in phases.column("end_boot_ns"))
    spans = sorted(
        zip(phases.column("name"), phases.column("begin_boot_ns"), ends),
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
            name,
            (left, 1),
            xycoords=("data", "axes fraction"),
            xytext=(2, -3),
            textcoords="offset points",
            rotation=90,
            va="top",
            fontsize="x-small",
            color="0.35",
        )
