"""Documents for the page whose every figure is known: made here, not by memtrace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from encoding import (
    GIB,
    MIB,
    SECOND,
    Json,
    Value,
    band,
    document,
    process,
    series,
    stack,
    totals,
)
from ordinary import compared as compared
from ordinary import ordinary as ordinary

HOSTILE_NAMES = [
    "</script><script>window.hurt=1</script>",
    "<img src=x onerror=window.hurt=2>",
    "\u202egnirts desrever\u2066",
    "\x1b[31mred\x07\n\tline",
    '=HYPERLINK("http://example.invalid")',
    "'\"><svg/onload=window.hurt=3>",
    "zero\u200bwidth\ufeff",
    "训练进程 مرحبا",
    "x" * 4096,
    "--" + "</title></style><!--" * 200,
]


def spike() -> Json:
    """Ten hours of 3 GiB; for 5 ms, at 7 h 11 min, the smaller role held 9 GiB more."""
    end = 36_000 * SECOND
    at = 25_860 * SECOND + 123_456_789
    times = [0, 10 * SECOND, at, at + 5_000_000, end]
    trainer = [0, 2 * GIB, 2 * GIB, 2 * GIB, 2 * GIB]
    loader = [0, GIB, 10 * GIB, GIB, GIB]
    roles = [series("trainer", "trainer", trainer), series("loader", "loader", loader)]
    held = series("held", "held", totals([trainer, loader]))
    return document(
        end, times, [stack("role", "held by role", "held", roles)], curves={"lines": [held]}
    )


def large(instants: int = 20_000, processes: int = 500) -> Json:
    """An hour of 500 processes, four stacks that change at every instant."""
    end = 3_600 * SECOND
    times = [round(end * place / instants) for place in range(instants)]

    def wave(number: int) -> list[Value]:
        step = 7 + number
        return [
            (200 + number * 13 + int(150 * math.sin(place * step / 997)) + place * step % 41) * MIB
            for place in range(instants)
        ]

    waves = {number: wave(number) for number in range(32)}
    stacks = []
    for by, count in (("role", 14), ("kind", 4), ("process", 32), ("cgroup", 6)):
        names = ["anon", "shmem", "file", "swap"] if by == "kind" else None
        members = [
            series(
                names[place] if names else f"{by}{place}",
                names[place] if names else f"{by} {place}",
                waves[place],
            )
            for place in range(count)
        ]
        stacks.append(stack(by, f"held by {by}", "held", members))
    held = series("held", "held, every page once", totals([waves[place] for place in range(14)]))
    rss = series("rss", "sum of RSS", waves[31])
    lanes = [
        process(
            1_000_000 + place,
            f"worker {place}",
            place * SECOND,
            end,
            (place + 1) * MIB,
            parent=None if place == 0 else 0,
            rss=[[place * SECOND, MIB]]
            + [[SECOND * 50, (level + place) * MIB] for level in range(59)],
        )
        for place in range(processes)
    ]
    bands = [
        band(f"step_{place}", place * 7 * SECOND, (place * 7 + 6) * SECOND, "step_<N>", place)
        for place in range(500)
    ]
    return document(end, times, stacks, curves={"lines": [held, rss]}, processes=lanes, bands=bands)


def hostile() -> Json:
    """An ordinary recording in which every name is an attack."""
    made = ordinary()
    names = iter(HOSTILE_NAMES * 400)

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: renamed(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [renamed(one, key) for one in value]
        is_name = key in {
            "name",
            "title",
            "text",
            "label",
            "process_name",
            "victim_name",
            "path",
            "cgroup",
            "cmdline",
            "argv",
            "detail",
            "subject",
            "hostname",
            "ending",
        }
        return next(names) if is_name and isinstance(value, str) else value

    changed: Json = renamed(made)
    return changed


def nothing() -> Json:
    """A recording without a row of memory, that was cut off."""
    made = document(0, [], [])
    made["report"]["recording"].update(
        state="recording", problems=["part-3.parquet ends in the middle"]
    )
    return made


def absurd() -> Json:
    """Times that cannot be, values that are not known, processes that end before they begin."""
    made = ordinary()
    curves = made["curves"]
    curves["time_ns"][10] = -(10**18)
    curves["time_ns"][-1] = 9 * 10**15
    curves["start_unix_ns"] = -(10**18)
    curves["stacks"][0]["series"][0]["bytes"][3] = None
    curves["lines"][0]["at"][5] = 10**9
    empty = series("used", "used, node", [])
    curves["limits"].append(
        {"by": "node", "label": "node", "time_ns": [], "used": empty, "limit": empty}
    )
    made["processes"][1].update(
        begin_ns=9 * 10**15, end_ns=-5, parent=40_000, peak_bytes=None, rss=[]
    )
    made["bands"].append(band("back", 50 * SECOND, 10 * SECOND))
    made["flags"].append({"at_ns": -(10**17), "kind": "unheard of", "text": "what"})
    return made


def many(count: int = 5_000) -> Json:
    """A day of thousands of processes."""
    end = 86_400 * SECOND
    lanes = [
        process(
            1_000_000 + place,
            f"job {place}",
            place * 17 * SECOND,
            (place * 17 + 900) * SECOND,
            (1 + place * 7919 % count) * MIB,
            parent=None if place == 0 else place // 10,
            title=f"/usr/bin/python3 job.py --number {place}",
        )
        for place in range(count)
    ]
    made = ordinary()
    return {
        **made,
        "curves": {**made["curves"], "end_ns": end},
        "processes": lanes,
        "report": {**made["report"], "process_count": count, "processes": []},
    }


# Each document that must show itself without a message on the console.
ALL: dict[str, Callable[[], Json]] = {
    "ordinary": ordinary,
    "spike": spike,
    "hostile": hostile,
    "compared": compared,
    "nothing": nothing,
    "absurd": absurd,
}
