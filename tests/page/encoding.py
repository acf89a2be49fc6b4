"""Parts of a document as memtrace writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
Value = int | None

SECOND = 1_000_000_000
MIB = 1 << 20
GIB = 1 << 30
START_UNIX_NS = 1_772_366_504 * SECOND


def gaps(times: Sequence[int]) -> list[int]:
    return [time - before for time, before in zip(times, [0, *times], strict=False)]


def series(ident: str, name: str, values: Sequence[Value], before: Value = 0, **more: Any) -> Json:
    """A step function as the document writes it: changes only, as differences."""
    at: list[int] = []
    changes: list[Value] = []
    place, known = 0, 0
    shown = before
    for index, value in enumerate(values):
        if value == shown:
            continue
        at.append(index - place)
        changes.append(None if value is None else value - known)
        place, shown = index, value
        known = known if value is None else value
    return {"id": ident, "name": name, "at": at, "bytes": changes, **more}


def instant(nanoseconds: int) -> Json:
    return {
        "time": "2026-03-01T12:01:44Z",
        "boot_ns": nanoseconds,
        "offset_ns": nanoseconds,
        "offset_s": nanoseconds / SECOND,
    }


def amounts(rss: Value, anon: Value = None, file: Value = None, shmem: Value = None) -> Json:
    return {
        "rss_bytes": rss,
        "anon_bytes": anon,
        "file_bytes": file,
        "shmem_bytes": shmem,
        "swap_bytes": 0,
    }


def report(end_ns: int, **more: Any) -> Json:
    """What the page reads of a report, with nothing found."""
    return {
        "format": "memtrace-report",
        "version": 2,
        "recording": {
            "path": "/recordings/one",
            "is_live": False,
            "memtrace_version": "0.1.0",
            "state": "closed",
            "problems": [],
            "hostname": "gpu-node-7",
            "kernel": "6.8.0",
            "arch": "x86_64",
            "cpu_count": 64,
            "mem_total_bytes": 504 * GIB,
            "target": {"kind": "command", "argv": ["vllm", "serve", "model"]},
            "command_exit_code": 0,
            "backend": "bpf",
            "backend_reason": "all programs attached",
            "interval_ns": SECOND,
            "start": instant(0),
            "duration_ns": end_ns,
        },
        "cost": {
            "cpu_ns": 900_000_000,
            "cpu_share": 0.0064,
            "peak_rss_bytes": 33 * MIB,
            "bpf_run_ns": 180_000_000,
            "written_bytes": 3 * MIB,
            "row_count": 4000,
            "lost_event_count": 0,
            "interval_ns": SECOND,
        },
        "losses": [],
        "notes": [],
        "peak": None,
        "at": None,
        "oom_kills": [],
        "roles": [],
        "phases": None,
        "gpu": None,
        "processes": [],
        "process_count": 0,
        **more,
    }


def document(end_ns: int, times: Sequence[int], stacks: list[Json], **more: Any) -> Json:
    curves = {
        "start_boot_ns": 0,
        "start_unix_ns": START_UNIX_NS,
        "end_ns": end_ns,
        "time_ns": gaps(times),
        "stacks": stacks,
        "lines": [],
        "bounds": [],
        "limits": [],
        "gpus": [],
        **more.pop("curves", {}),
    }
    made = {
        "format": "memtrace-page",
        "version": 1,
        "title": "vllm serve model",
        "target": "vllm serve model",
        "answer": [{"tone": "strong", "text": "The most that was held was told."}],
        "report": report(end_ns),
        "curves": curves,
        "bands": [],
        "flags": [],
        "processes": [],
    }
    return {**made, **more}


def band(
    name: str, begin_ns: int, end_ns: int, stage: str | None = None, step: int | None = None
) -> Json:
    return {
        "name": name,
        "role": None,
        "pid": 820,
        "stage": stage,
        "step": step,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "depth": 0,
    }


def stack(by: str, label: str, total: str, members: list[Json]) -> Json:
    return {"by": by, "label": label, "total": total, "series": members}


def process(upid: int, name: str, begin_ns: int, end_ns: Value, peak: Value, **more: Any) -> Json:
    return {
        "upid": upid,
        "pid": upid % 100_000,
        "parent": None,
        "name": name,
        "title": f"/usr/bin/{name}",
        "role": None,
        "cgroup": None,
        "begin_ns": begin_ns,
        "end_ns": end_ns,
        "ending": "exited 0",
        "peak_bytes": peak,
        "peak_bound": "within_error",
        "peak_bound_bytes": 96 * MIB,
        "peak_at_ns": begin_ns,
        "rss": [[begin_ns, peak]],
        **more,
    }


def totals(members: Sequence[Sequence[Value]]) -> list[Value]:
    return [sum(value or 0 for value in values) for values in zip(*members, strict=True)]
