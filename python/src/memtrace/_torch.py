"""Snapshots of torch's CUDA allocator, for `memtrace import torch`. Never imports torch, never
initialises CUDA."""

from __future__ import annotations

import os
from typing import Any

from . import _gpu, _marks, _recorder

MARK = "torch_snapshot"


def torch_snapshot(path: str | os.PathLike[str] | None = None) -> str | None:
    """Writes what torch's CUDA caching allocator holds to a file, and marks this moment.

    ``memtrace import torch FILE`` adds it to the recording, and the report says what torch held
    and did not use, and which lines allocated it if the program called
    ``torch.cuda.memory._record_memory_history()``. Without a path the file is
    ``torch-snapshot-PID-TIME.pickle`` in the current directory. An existing file is not replaced.

    Answers the path. Does nothing and answers None without a recorder, and where torch does not use
    CUDA. Never raises: what failed is the mark's attribute `error`. It takes as long as torch needs
    to list its blocks; the history of earlier allocations is not written.
    """
    recorder = _recorder.active
    cuda = _gpu.cuda_in_use()
    if recorder is None or cuda is None:
        return None
    boot = _recorder.boot_ns()
    held = _marks.held()
    attrs: dict[str, Any] = {}
    written = None
    try:
        # Not needed by others, and slow to import.
        import pickle

        file = os.fspath(path) if path is not None else _name(boot)
        attrs["file"] = os.path.abspath(file)
        # Segments last: what stands behind them is not read.
        snapshot = {"boot_ns": boot, "segments": _segments(cuda)}
        with open(file, "xb") as out:
            try:
                pickle.dump(snapshot, out, protocol=4)
            except BaseException:
                # A part of it would stand in the way of the next.
                os.unlink(file)
                raise
        written = file
    except Exception as error:
        attrs["error"] = f"{type(error).__qualname__}: {error}"
    recorder.tell("instant", MARK, boot, None, _marks.with_held(attrs, held))
    return written


def _name(boot: int) -> str:
    return f"torch-snapshot-{os.getpid()}-{boot // 1_000_000}.pickle"


def _segments(cuda: Any) -> Any:
    try:
        return cuda.memory_snapshot(include_traces=False)
    except TypeError:
        # Before torch 2.11.
        return cuda.memory_snapshot()
