"""What the report found, saved as tables beside the recording: `phase` and `role_mem`.

Nothing of it is worked out here, so that a notebook never disagrees with the report.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from .._errors import FindingsError
from . import files
from .table import Table

NAMES = ("phase", "role_mem")
_OF = b"memtrace.findings_of"


def read(directory: Path, name: str) -> Table:
    """Reads such a table, whole or not at all: they can be made again."""
    parts = files.parts(directory / name)
    # A name that begins with `-` would be an option.
    given = f"./{directory}" if str(directory).startswith("-") else directory
    how = f"save them with: memtrace report --save-findings {given}"
    if not parts:
        raise FindingsError(f"the findings of {directory} are not saved; {how}")
    problems: list[str] = []
    table = files.read(directory, name, problems)
    if problems:
        raise FindingsError(f"of the findings of {directory}, {problems[0]}; {how}")
    if any(files.metadata(path, _OF) != _state(directory) for path in parts):
        raise FindingsError(f"the findings saved in {directory} are of another recording; {how}")
    return table


def _state(directory: Path) -> str:
    """What the recording is now: a checksum of run.json, and of its files and their sizes."""
    state = zlib.crc32((directory / "run.json").read_bytes())
    for name in files.tables_in(directory):
        for path in files.parts(directory / name) if name not in NAMES else ():
            line = f"\n{name}/{path.name} {path.stat().st_size}"
            state = zlib.crc32(line.encode(), state)
    return f"{state:08x}"
