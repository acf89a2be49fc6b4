"""Marks, phases and exact peaks for memtrace recordings.

Without a recorder marks and phases cost nothing worth mentioning and do nothing. With one
(``memtrace record -- python train.py``) they stand in the recording, on its clock.
"""

from __future__ import annotations

from ._gpu import GpuPeak
from ._heap import PythonHeap, python_heap
from ._instrument import instrument
from ._marks import is_recording, mark, phase
from ._peak import peak

__version__ = "0.1.0"

__all__ = [
    "GpuPeak",
    "PythonHeap",
    "instrument",
    "is_recording",
    "mark",
    "peak",
    "phase",
    "python_heap",
]
