"""Marks, phases and exact peaks for memtrace recordings, and a reader for them.

Without a recorder marks and phases cost nothing worth mentioning and do nothing. With one
(``memtrace record -- python train.py``) they stand in the recording, on its clock.

PYTEST_DONT_REWRITE: pytest would warn that it can't, where this is imported before its plugin.
"""

from __future__ import annotations

import os as _os
from typing import TYPE_CHECKING, Any

from ._errors import FindingsError
from ._gpu import GpuPeak
from ._heap import PythonHeap, python_heap
from ._instrument import instrument
from ._live import live
from ._marks import is_recording, mark, phase
from ._peak import peak
from ._record import record
from ._steps import mark_steps
from ._torch import torch_snapshot

if TYPE_CHECKING:
    from ._recording.recording import Recording

__version__ = "0.1.0"

__all__ = [
    "FindingsError",
    "GpuPeak",
    "PythonHeap",
    "duckdb_macros",
    "instrument",
    "is_recording",
    "live",
    "load",
    "mark",
    "mark_steps",
    "peak",
    "phase",
    "python_heap",
    "record",
    "torch_snapshot",
]


# Not `Recording | Run`: whoever knows the path knows which of both it is.
def load(path: str | _os.PathLike[str] | None = None) -> Recording | Any:
    """Opens a recording, closed or not, for reading: a `Recording`.

    `path` is its directory or its address (``s3://…``, ``gs://…``, ``az://…``), with credentials as
    in the environment of ``memtrace report``. Without a path it is the newest recording in the
    current directory, as for ``memtrace report``; `FileNotFoundError` when there is none.

    ``…/run=ID``, or a host of it, is a `Run`: the recordings of all hosts.
    """
    from ._recording.files import newest
    from ._recording.run import opened

    return opened(newest() if path is None else path)


def load_ipython_extension(shell: Any) -> None:
    """``%load_ext memtrace``: a cell that begins with ``%%memtrace`` shows its peak memory."""
    from ._jupyter import add_magic

    add_magic(shell)


def duckdb_macros() -> str:
    """Macros for DuckDB that read the tables of a recording as step functions, as SQL.

    ``duckdb.execute(memtrace.duckdb_macros())``; docs/tables.md shows what they answer.
    """
    path = _os.path.join(_os.path.dirname(__file__), "duckdb.sql")
    with open(path, encoding="utf-8") as file:
        return file.read()
