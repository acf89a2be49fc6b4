"""What the report found, saved as tables beside the recording: `phase`, `role_mem` and `held`.

Nothing of it is worked out here, so that a notebook never disagrees with the report.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .._errors import FindingsError
from . import files
from .part import ALWAYS, Stretch
from .table import Table

if TYPE_CHECKING:
    from .places import Place

NAMES = ("phase", "role_mem", "held")
_OF, _TABLE = b"memtrace.findings_of", b"memtrace.table"


def read(
    place: Place, name: str, columns: Sequence[str] | None = None, stretch: Stretch = ALWAYS
) -> Table:
    """Reads such a table, whole or not at all: they can be made again."""
    parts = files.parts(place, name)
    how = _how(place)
    if not parts:
        raise FindingsError(f"the findings of {place} are not saved; {how}")
    problems: list[str] = []
    table = files.read(place, name, problems, columns, stretch)
    if problems:
        raise FindingsError(f"of the findings of {place}, {problems[0]}; {how}")
    texts = [files.texts_of(place, file) for file in parts]
    of_table = name.encode()
    if len(parts) > 1 or any(text.get(_TABLE, of_table) != of_table for text in texts):
        # There is one part of each.
        raise FindingsError(f"files of the findings of {place} were copied or exchanged; {how}")
    if any(text.get(_OF) != _state(place).encode() for text in texts):
        raise FindingsError(f"the findings saved in {place} are of another recording; {how}")
    return table


def _how(place: Place) -> str:
    if place.is_remote:
        return (
            "`memtrace record` saves them when it closes a recording; else save them where it is "
            "made, with memtrace report --save-findings, and push it again"
        )
    # A name that begins with `-` would be an option.
    given = f"./{place}" if str(place).startswith("-") else place
    return f"save them with: memtrace report --save-findings {given}"


def _state(place: Place) -> str:
    """What the recording is now: a checksum of run.json, and of its files and their sizes."""
    state = zlib.crc32(place.run_json())
    for name in files.tables_in(place):
        for file in files.parts(place, name) if name not in NAMES else ():
            line = f"\n{file} {place.size(file)}"
            state = zlib.crc32(line.encode(), state)
    return f"{state:08x}"
