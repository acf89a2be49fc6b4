"""The limit under which the tree stood, and OOM kills, in a picture of memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..clock import SECOND
from .units import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..recording import Recording

# Of more kills only so many are named, those of recorded processes first.
_NAMED_KILLS = 20


def limit_bytes(recording: Recording) -> int | None:
    """The lowest limit of the root's cgroup and of those above it, as it was last."""
    table = recording._table_or_none("cgroup_mem")
    root = recording.run.get("root_tgid")
    columns = (recording["process"].column(name) for name in ("tgid", "cgroup"))
    own = next((group for tgid, group in zip(*columns) if tgid == root and group), None)
    if table is None or own is None:
        return None
    last: dict[str, int | None] = {}
    for group, limit in zip(*map(table.column, ("cgroup", "limit_bytes"))):
        last[group] = limit
    above = (
        limit for group, limit in last.items() if f"{own}/".startswith(f"{group.rstrip('/')}/")
    )
    return min((limit for limit in above if limit is not None), default=None)


def draw(recording: Recording, ax: Axes, limit: int | None, per: int, unit_name: str) -> None:
    """Draws both: the limit as a line where it has room, else as words."""
    if limit is not None:
        words = f"limit {limit / per:,.1f} {unit_name}"
        top = ax.get_ylim()[1]
        has_room = limit / per <= top
        if has_room:
            ax.axhline(limit / per, color="C3", linewidth=1, linestyle="--")
        ax.annotate(
            words if has_room else f"{words} (above)",
            (1, min(limit / per, top)),
            xycoords=("axes fraction", "data"),
            xytext=(-3, -3),
            textcoords="offset points",
            ha="right",
            va="top",
            fontsize="small",
            color="C3",
        )
    _draw_kills(recording, ax)


def _draw_kills(recording: Recording, ax: Axes) -> None:
    table = recording._table_or_none("oom")
    if table is None:
        return
    columns = map(table.column, ("boot_ns", "victim_upid", "victim_comm"))
    kills = [((time - recording.start_ns) / SECOND, *who) for time, *who in zip(*columns)]
    ax.vlines(
        [at for at, *_ in kills],
        0,
        1,
        transform=ax.get_xaxis_transform(),
        color="C3",
        linewidth=1,
        label="_kills",
    )
    # The table has those of the whole machine.
    kills.sort(key=lambda kill: kill[1] is None)
    for at, upid, comm in kills[:_NAMED_KILLS]:
        ax.annotate(
            f"OOM kill: {plain(comm or '?')}{' (not recorded)' if upid is None else ''}",
            (at, 0),
            xycoords=("data", "axes fraction"),
            xytext=(-2, 3),
            textcoords="offset points",
            rotation=90,
            ha="right",
            va="bottom",
            fontsize="x-small",
            color="C3",
        )
    if len(kills) > _NAMED_KILLS:
        recording._note(f"{_NAMED_KILLS} of {len(kills)} OOM kills are named in the picture")
