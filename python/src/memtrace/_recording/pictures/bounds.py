"""The limit under which the tree stood, and OOM kills, in a picture of memory over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..clock import SECOND
from .units import plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..recording import Recording

# Of more kills only the first are named.
_KILLS = 20


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


def draw(recording: Recording, ax: Axes, per: int, unit_name: str) -> None:
    """Draws both: the limit as a line where it has room, else as words."""
    limit = limit_bytes(recording)
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
    kills = recording._table_or_none("oom")
    if kills is None:
        return
    for time, comm in list(zip(*map(kills.column, ("boot_ns", "victim_comm"))))[:_KILLS]:
        at = (time - recording.start_ns) / SECOND
        ax.axvline(at, color="C3", linewidth=1)
        ax.annotate(
            f"OOM kill: {plain(comm or '?')}",
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
