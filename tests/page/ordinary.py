"""A recording with everything that the page can show, and its comparison with another."""

from __future__ import annotations

from encoding import (
    GIB,
    MIB,
    SECOND,
    Json,
    Value,
    amounts,
    band,
    document,
    gaps,
    instant,
    process,
    report,
    series,
    stack,
    totals,
)


def ordinary() -> Json:
    """Two minutes with two roles, phases, a kill, a limit, two GPUs, a ledger and steps."""
    end = 120 * SECOND
    times = [second * SECOND for second in range(0, 121, 2)]
    seconds = [time // SECOND for time in times]

    def ramp(begin: int, most: int) -> list[Value]:
        return [
            0 if second < begin else min(most, (second - begin) * most // 40) for second in seconds
        ]

    server, worker = ramp(0, 2 * GIB), ramp(20, 12 * GIB)
    anon = [
        (one or 0) * 3 // 4 + (other or 0) // 2 for one, other in zip(server, worker, strict=True)
    ]
    total = totals([server, worker])
    shmem = [(all_ or 0) - kept for all_, kept in zip(total, anon, strict=True)]
    rss = [(value or 0) * 8 // 7 for value in total]
    used = [20 * GIB if second >= 30 else 0 for second in seconds]
    idle = [GIB for _ in seconds]
    roles = [
        {"name": "vLLM worker", "upids": [1_000_820]},
        {"name": "vLLM API server", "upids": [1_000_800]},
    ]
    server_role = series("server", "vLLM API server", server)
    worker_role = series("worker", "vLLM worker", worker)
    stacks = [
        stack("role", "held by role", "held", [worker_role, server_role]),
        stack(
            "kind",
            "held by kind of memory",
            "held",
            [series("anon", "anonymous", anon), series("shmem", "shared memory", shmem)],
        ),
        stack(
            "process",
            "held by process",
            "held",
            [
                series("1000820", "vLLM worker TP0", worker, pid=820, upid=1_000_820),
                series("1000800", "vLLM API server", server, pid=800, upid=1_000_800),
            ],
        ),
    ]
    gpus = [
        {
            "id": str(place),
            "label": f"GPU {place} NVIDIA H100",
            "total_bytes": 80 * GIB,
            "time_ns": gaps(times),
            "used": series("used", "used", totals([used, idle]), before=None),
            "series": [
                series("1000820", "vLLM worker TP0", used, None, pid=820, upid=1_000_820),
                series("reserved", "reserved", idle, before=None),
            ],
        }
        for place in range(2)
    ]
    step_bands = [
        band(f"step_{step}", (70 + step * 4) * SECOND, (73 + step * 4) * SECOND, "step_<N>", step)
        for step in range(10)
    ]
    bands = [
        band("load_model", 20 * SECOND, 62 * SECOND),
        band("serve", 64 * SECOND, end),
        *step_bands,
    ]
    peak = composition(
        60 * SECOND, [("vLLM worker TP0", 820, 12 * GIB), ("vLLM API server", 800, 2 * GIB)]
    )
    lanes = [
        process(
            1_000_800,
            "vLLM API server",
            0,
            end,
            2 * GIB,
            role="vLLM API server",
            peak_at_ns=40 * SECOND,
            rss=[[0, 100 * MIB], [20 * SECOND, GIB], [20 * SECOND, 2 * GIB]],
        ),
        process(
            1_000_820,
            "vLLM worker TP0",
            20 * SECOND,
            100 * SECOND,
            12 * GIB,
            role="vLLM worker",
            parent=0,
            peak_at_ns=60 * SECOND,
            ending="SIGKILL (OOM killer)",
            rss=[[20 * SECOND, GIB], [20 * SECOND, 6 * GIB], [20 * SECOND, 12 * GIB]],
        ),
        *(
            process(
                1_000_900 + place,
                f"helper {place}",
                (30 + place) * SECOND,
                (32 + place) * SECOND,
                (place + 1) * MIB,
                parent=0,
            )
            for place in range(30)
        ),
    ]
    kill = {
        "at": instant(100 * SECOND),
        "victim_name": "vLLM worker TP0",
        "victim_pid": 820,
        "held": composition(100 * SECOND, [("vLLM worker TP0", 820, 12 * GIB)]),
    }
    found = report(
        end,
        peak=peak,
        oom_kills=[kill],
        roles=roles,
        phases=phases(),
        processes=[told(lane) for lane in lanes],
        process_count=len(lanes),
        losses=[
            {
                "severity": "loss",
                "subject": "ring buffer",
                "count": 3,
                "detail": "3 events were lost",
                "first": instant(80 * SECOND),
                "last": instant(81 * SECOND),
            }
        ],
    )
    flags = [
        {"at_ns": 100 * SECOND, "kind": "oom", "text": "the OOM killer killed vLLM worker TP0 820"},
        {"at_ns": 60 * SECOND, "kind": "peak", "text": "most was held: 14.0 GiB"},
        {"at_ns": 80 * SECOND, "kind": "loss", "text": "3 events were lost"},
        {"at_ns": 64 * SECOND, "kind": "mark", "text": "ready"},
    ]
    limit = {
        "by": "cgroup",
        "name": "/pod/trainer",
        "label": "cgroup /pod/trainer",
        "time_ns": [0],
        "used": series("used", "used, cgroup /pod/trainer", [13 * GIB], before=None),
        "limit": series("limit", "limit, cgroup /pod/trainer", [16 * GIB], before=None),
    }
    return document(
        end,
        times,
        stacks,
        report=found,
        bands=bands,
        flags=flags,
        processes=lanes,
        flames=flames(),
        flames_at_peak=[flames()[1], flames()[1] | {"name": "feeder 831"}],
        curves={
            "lines": [
                series("held", "memory held, every page once", total),
                series("rss", "sum of RSS", rss),
                series("swap", "swapped out", [MIB for _ in seconds]),
            ],
            "limits": [limit],
            "gpus": gpus,
        },
        answer=[
            {
                "tone": "alert",
                "text": "vLLM worker TP0 820 was killed by the OOM killer at +100.0s: "
                "the limit of /pod/trainer was full.",
            },
            {
                "tone": "strong",
                "text": "Most was held at +60.0s: 14.0 GiB, of that 12.0 GiB by vLLM worker.",
            },
            {
                "tone": "plain",
                "text": "Look next: `memtrace report --phase 'load `one` model'` for each role.",
            },
        ],
    )


def flames() -> list[Json]:
    """Resident memory by stack: two lines of a worker, and another process."""

    def part(name: str, mib: int, kind: str | None, *parts: Json) -> Json:
        return {"name": name, "kind": kind, "bytes": mib * MIB, "parts": list(parts)}

    malloc = part("malloc (libc.so.6)", 600, "native")
    return [
        part(
            "vllm 820",
            1_000,
            None,
            part(
                "loop.py:40 main",
                1_000,
                "python",
                part("buffer.py:118 update", 600, "python", malloc),
                part("data.py:77 collate", 300, "python"),
            ),
        ),
        part("feeder 830", 200, None, part("grow (libfeed.so)", 200, "native")),
    ]


def told(lane: Json) -> Json:
    """A process as the report tells it: that with most memory grows."""
    is_most = lane["peak_bytes"] == 12 * GIB
    growth = {"bytes_per_hour": 3 * GIB, "verdict": "growing"} if is_most else None
    begin, end = lane["begin_ns"], lane["end_ns"]
    peak = lane["peak_bytes"]
    return {
        "upid": lane["upid"],
        "pid": lane["pid"],
        "parent_upid": None,
        "name": lane["name"],
        "role": lane["role"],
        "rank": None,
        "comm": lane["name"][:15],
        "exe": None,
        "cmdline": lane["title"],
        "last_title": None,
        "uid": 1000,
        "cgroup": lane["cgroup"],
        "container_id": None,
        "start": instant(begin),
        "end": None if end is None else instant(end),
        "ended": "exited",
        "exit_code": 0,
        "exit_signal": None,
        "oom_killed": False,
        "growth": growth,
        "peak": {
            "rss_bytes": peak,
            "bound": "within_error",
            "error_bytes": 96 * MIB,
            "source": "kernel_hiwater",
            "at": instant(begin),
            "series": amounts(peak, peak, 0, 0),
        },
    }


def composition(at_ns: int, holders: list[tuple[str, int, int]]) -> Json:
    anonymous = [
        {
            "pid": pid,
            "upid": 1_000_000 + pid,
            "name": name,
            "bytes": held * 3 // 4,
            "basis": "exact",
        }
        for name, pid, held in holders
    ]
    anon = sum(held * 3 // 4 for _, _, held in holders)
    ledger = {
        "scope": "cgroup",
        "cgroup": "/pod/trainer",
        "current_bytes": anon + 3 * GIB + 512 * MIB + 100 * MIB,
        "age_ns": 0,
        "anonymous_bytes": anon,
        "anonymous": anonymous,
        "other_processes_bytes": 0,
        "other_process_count": 0,
        "recorder_bytes": None,
        "shared_bytes": 2 * GIB,
        "shared": [
            {
                "kind": "tmpfs",
                "name": "/dev/shm/psm_1",
                "device": "0:25",
                "inode": 7,
                "allocated_bytes": 2 * GIB,
                "resident_bytes": 2 * GIB,
                "mapper_count": 2,
            }
        ],
        "other_shared_bytes": 0,
        "files_bytes": GIB,
        "files": [{"path": "/models/one.safetensors", "cached_bytes": 900 * MIB, "user_count": 1}],
        "other_files_bytes": 412 * MIB,
        "shared_elsewhere": [],
        "files_elsewhere": [],
        "kernel_bytes": 100 * MIB,
        "kernel": [{"part": "slab", "bytes": 60 * MIB}, {"part": "page_tables", "bytes": 40 * MIB}],
        "residual_bytes": 100 * MIB,
        "limit_bytes": 16 * GIB,
    }
    held = sum(amount for _, _, amount in holders)
    return {
        "at": instant(at_ns),
        "held_bytes": held,
        "sum_of_rss_bytes": held,
        "holder_count": len(holders),
        "holders": [
            {
                "pid": pid,
                "upid": 1_000_000 + pid,
                "name": name,
                **amounts(amount, amount * 3 // 4, 0, amount // 4),
            }
            for name, pid, amount in holders
        ],
        "ledgers": [ledger],
    }


def phases() -> Json:
    def stretch(begin: int, end: int, peak: int) -> Json:
        return {
            "begin": amounts(begin),
            "end": amounts(end),
            "delta": amounts(end - begin),
            "peak_rss_bytes": peak,
            "peak_at": instant(60 * SECOND),
        }

    load = {
        "name": "load_model",
        "pid": 820,
        "upid": 1_000_820,
        "process_name": "vLLM worker TP0",
        "kind": "phase",
        "depth": 0,
        "begin": instant(20 * SECOND),
        "end": instant(62 * SECOND),
        "duration_ns": 42 * SECOND,
        "ended_by": "mark",
        "held": {
            "begin_bytes": GIB,
            "end_bytes": 14 * GIB,
            "delta_bytes": 13 * GIB,
            "peak_bytes": 14 * GIB,
        },
        "tree_uncertain": {"begin": False, "end": False},
        "since_baseline_bytes": 13 * GIB,
        "roles": [{"name": "vLLM worker", **stretch(0, 12 * GIB, 12 * GIB)}],
        "gpu": {
            "begin_bytes": 2 * GIB,
            "end_bytes": 42 * GIB,
            "delta_bytes": 40 * GIB,
            "peak_bytes": 42 * GIB,
        },
    }
    spread = {"known_count": 10, "sum_bytes": 10 * MIB, "mean_bytes": MIB, "p95_bytes": 2 * MIB}
    slope = {
        "bytes_per_step": 1.5 * MIB,
        "low_bytes_per_step": 1.0 * MIB,
        "high_bytes_per_step": 2.0 * MIB,
        "step_count": 9,
        "first_step": 1,
        "last_step": 9,
    }
    steps = {
        "name": "step_<N>",
        "pid": 820,
        "upid": 1_000_820,
        "process_name": "vLLM worker TP0",
        "process_count": 1,
        "kind": "phase",
        "count": 10,
        "begin": instant(70 * SECOND),
        "end": instant(109 * SECOND),
        "total_ns": 30 * SECOND,
        "held": {"delta": spread, "end": spread, "peak_bytes": 14 * GIB},
        "tree_delta_bytes": 10 * MIB,
        "gpu_delta_bytes": 0,
        "since_baseline_bytes": 13 * GIB,
        "gpu": None,
        "roles": [
            {
                "name": "vLLM worker",
                "delta": spread,
                "end": spread,
                "peak_bytes": 12 * GIB,
                "slope": slope,
            }
        ],
        "steps": {
            "first": 0,
            "last": 9,
            "count": 10,
            "tree": slope,
            "own": slope,
            "gpu": None,
            "grower": {"pid": 820, "upid": 1_000_820, "name": "vLLM worker TP0", "slope": slope},
        },
    }
    return {
        "count": 11,
        "line_count": 2,
        "baseline_held_bytes": GIB,
        "baseline_at": instant(20 * SECOND),
        "is_lower_bound": False,
        "peak_is_lower_bound": False,
        "lines": [load, steps],
    }


def compared() -> Json:
    """A recording beside an earlier one that held a gibibyte less."""
    after, before = ordinary(), ordinary()

    def change(one: int, other: int) -> Json:
        return {
            "before_bytes": one,
            "after_bytes": other,
            "change_bytes": other - one,
            "change_ratio": None,
        }

    def comparison(name: str, one: int, other: int) -> Json:
        kinds = {
            kind: {
                "peak": change(one, other),
                "mean": change(one, other),
                "bytes_per_hour": change(0, 0),
            }
            for kind in ("rss", "anon", "file", "shmem", "swap")
        }
        gpu = {
            "before_bytes": None,
            "after_bytes": None,
            "change_bytes": None,
            "change_ratio": None,
        }
        return {
            "name": name,
            "process_count_before": 1,
            "process_count_after": 2,
            "kinds": kinds,
            "gpu_peak": gpu,
        }

    side = {
        "path": "/recordings/one",
        "hostname": "gpu-node-7",
        "duration_ns": 120 * SECOND,
        "process_count": 32,
    }
    diff = {
        "before": side,
        "after": side,
        "whole": comparison("all", 13 * GIB, 14 * GIB),
        "roles": [
            comparison("vLLM worker", 10 * GIB, 12 * GIB),
            comparison("vLLM API server", 3 * GIB, 2 * GIB),
        ],
    }
    return {**after, "diff": diff, "other": before}
