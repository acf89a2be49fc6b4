"""Python's own heap, when the person has tracemalloc on. Never switches it on."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _recorder

_tracer: Any
try:
    # What tracemalloc is made of. `python -X tracemalloc` starts it without the module.
    import _tracemalloc as _tracer
except ImportError:
    # Not CPython.
    _tracer = None

MARK = "python_heap"


class PythonHeap(NamedTuple):
    """What tracemalloc counts."""

    current_bytes: int
    peak_bytes: int


def traced() -> PythonHeap | None:
    """Current and peak size of what tracemalloc traces; None when it is off."""
    if _tracer is None or not _tracer.is_tracing():
        return None
    return PythonHeap(*_tracer.get_traced_memory())


def attributes() -> dict[str, Any]:
    """The figures as attributes of a mark; none when tracemalloc is off."""
    heap = traced()
    if heap is None:
        return {}
    return {
        "python_heap_bytes": heap.current_bytes,
        "python_heap_peak_bytes": heap.peak_bytes,
    }


def python_heap(top: int = 0) -> PythonHeap | None:
    """Sends the mark `python_heap` with the current and peak size of Python's heap.

    Does nothing and returns None unless tracemalloc is tracing (``python -X tracemalloc``,
    or ``tracemalloc.start()``). With `top`, the mark holds the that many largest allocation
    sites too; this takes a snapshot of all traced blocks, which can take seconds.
    """
    heap = traced()
    recorder = _recorder.active
    if heap is None or recorder is None:
        return heap
    boot = _recorder.boot_ns()
    attrs: dict[str, Any] = {"current_bytes": heap.current_bytes, "peak_bytes": heap.peak_bytes}
    if top > 0:
        attrs["top"] = _top_sites(top)
    recorder.tell("instant", MARK, boot, attrs=attrs)
    return heap


def _top_sites(count: int) -> list[dict[str, Any]]:
    import tracemalloc

    own = tracemalloc.Filter(False, tracemalloc.__file__)
    snapshot = tracemalloc.take_snapshot().filter_traces((own,))
    return [
        {
            "file": statistic.traceback[0].filename,
            "line": statistic.traceback[0].lineno,
            "size_bytes": statistic.size,
            "count": statistic.count,
        }
        for statistic in snapshot.statistics("lineno")[:count]
    ]
