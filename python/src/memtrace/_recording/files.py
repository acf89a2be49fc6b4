"""The files of a table: Parquet parts, and segments of the spool that are in no part yet.

The layout is that of memtrace's store. Segments and parts are numbered, and one rule says
which file a row is read from: of a segment whose number is not above that of the newest
part, the rows up to that part's cut are in parts. A part without a cut has all of them.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from . import checksums
from .part import ALWAYS, TIME, Part, Stretch, within
from .places import Folder
from .table import Table, arrow

if TYPE_CHECKING:
    from .manifest import Manifest
    from .places import Place

_PART = re.compile(r"part-(\d{5,})\.parquet\Z")
_SEGMENT = re.compile(r"(\w+)-(\d{5,})\.arrows\Z")
_SPOOL = "spool"
# Begins each message of a segment.
_CONTINUATION = b"\xff" * 4
# Tables of which only the last row of each key counts.
_KEYS = {"process": "upid"}
# Parts become one while somebody reads them.
_ATTEMPTS = 3


def newest() -> Path:
    """The newest recording in the current directory: that which began last.

    As `memtrace report` chooses: by run.json's first clock, else by the name.
    """
    found = []
    for path in Path().iterdir():
        try:
            text = Folder(path).run_json()
        except OSError:
            continue
        try:
            began = json.loads(text)["clocks"][0]["wall_ns"]
        except (ValueError, LookupError, TypeError, RecursionError):
            began = -1
        if type(began) is not int or not 0 <= began < 1 << 63:
            began = -1
        if began >= 0 or path.name.startswith("memtrace-"):
            found.append((began, path))
    if not found:
        raise FileNotFoundError(
            "there is no recording in the current directory: give the directory of one, or make "
            "one with `memtrace record -- COMMAND`"
        )
    return max(found)[1]


def tables_in(place: Place) -> list[str]:
    """The names of the tables that have files, in order."""
    names = {name for name in place.names() if name != _SPOOL and parts(place, name)}
    names.update(match[1] for match in map(_SEGMENT.match, place.names(_SPOOL)) if match)
    return sorted(names - {_SPOOL, "damaged"})


def parts(place: Place, name: str) -> list[str]:
    """The Parquet files of a table, in order."""
    return [file for _, file in _numbered(place, name, _PART, 1)]


def texts_of(place: Place, file: str) -> dict[bytes, bytes]:
    """The texts that the metadata of a Parquet file has."""
    with place.open(file) as raw:
        return Part(raw, place.size(file)).texts


def read(
    place: Place,
    name: str,
    problems: list[str],
    columns: Sequence[str] | None = None,
    stretch: Stretch = ALWAYS,
    manifest: Manifest | None = None,
) -> Table:
    """Reads a table, or these columns of it that it has, or its rows of a stretch. What can't be
    read, or is not the recording's by its manifest, becomes a sentence in `problems`."""
    pa = arrow()
    key = _KEYS.get(name)
    wanted = None if columns is None else {*columns, key or TIME}

    def read_part(part: Part) -> Any:
        return part.read(wanted, stretch)

    for attempt in range(_ATTEMPTS):
        found: list[str] = []
        files = list(_frames(place, name, found, read_part, stretch, manifest))
        if not any(one.is_gone for one in files) or attempt == _ATTEMPTS - 1:
            break
        place.look_again()
    problems.extend(found)
    frames = [one.frame for one in _without_replaced(files) if one.frame is not None]
    if not frames:
        return Table(name, pa.table({}))
    frame = pa.concat_tables(frames, promote_options="default")
    if stretch != ALWAYS and TIME not in frame.column_names:
        raise ValueError(f"rows of {name} have no {TIME} by which to choose them")
    if key is not None:
        frame = _last_of_each(frame, key)
    elif TIME in frame.column_names:
        frame = _in_order(frame)
    if columns is not None:
        frame = frame.select([column for column in columns if column in frame.column_names])
    return Table(name, frame)


def _without_replaced(files: list[_File]) -> list[_File]:
    """Those whose rows are in no newer part too."""
    left = []
    first_replaced: float = math.inf
    for one in reversed(files):
        if one.number is None or one.number < first_replaced:
            left.append(one)
        if one.replaced:
            first_replaced = min(first_replaced, one.replaced.start)
    return left[::-1]


def check(place: Place, name: str, problems: list[str], manifest: Manifest | None) -> None:
    """Reads all of a table for the problems that `read` would find, and keeps none of it."""
    for _ in _frames(place, name, problems, Part.read_through, ALWAYS, manifest):
        pass


class _File(NamedTuple):
    """What was read of a file."""

    frame: Any = None
    cut_ns: int | None = None
    problems: tuple[str, ...] = ()
    is_read: bool = False
    is_gone: bool = False
    number: int | None = None
    # Numbers of the parts whose rows are in it too.
    replaced: range = range(0)


def _frames(
    place: Place,
    name: str,
    problems: list[str],
    read_part: Callable[[Part], Any],
    stretch: Stretch,
    manifest: Manifest | None,
) -> Iterator[_File]:
    """Each file of a table that counts; `read_part` gives the rows of a part."""

    def read_file(numbered: tuple[int, str]) -> _File:
        number, file = numbered
        try:
            with place.open(file) as raw:
                size = place.size(file)
                part = Part(raw, size)
                why = manifest and manifest.refusal_of_part(
                    name, number, part.texts, part.rows, size
                )
                if why is not None:
                    return _File(problems=(f"{file} is left out: {why}",) if why else ())
                frame = read_part(part)
                replaced = range(part.replaces_from(number), number)
        except Exception as error:
            # That a place can't be reached is no damage.
            if place.is_remote and isinstance(error, (PermissionError, ConnectionError)):
                raise
            is_gone = isinstance(error, FileNotFoundError)
            return _File(problems=(f"{file} can't be read: {error}",), is_gone=is_gone)
        told = tuple(f"{file}: {what} does not match its checksum" for what in part.damages)
        return _File(frame, part.cut_ns, told, True, number=number, replaced=replaced)

    newest, cut_ns = -1, None
    numbered = _numbered(place, name, _PART, 1)
    files = place.each(read_file, numbered)
    for (number, _), one in zip(numbered, files):
        problems.extend(one.problems)
        if one.is_read:
            newest, cut_ns = number, one.cut_ns
        yield one
    for number, file in _numbered(place, _SPOOL, _SEGMENT, 2, name):
        if number <= newest and cut_ns is None:
            continue
        frame = _segment(place, name, number, file, problems, manifest)
        if frame is None:
            continue
        if number <= newest and cut_ns is not None:
            frame = within(frame, (cut_ns + 1, None))
        yield _File(within(frame, stretch))


def _numbered(
    place: Place, folder: str, pattern: re.Pattern[str], group: int, name: str | None = None
) -> list[tuple[int, str]]:
    found = []
    for file in place.names(folder):
        match = pattern.match(file)
        if match and (name is None or match[1] == name):
            found.append((int(match[group]), f"{folder}/{file}"))
    return sorted(found)


def _segment(
    place: Place,
    name: str,
    number: int,
    file: str,
    problems: list[str],
    manifest: Manifest | None,
) -> Any:
    """The complete batches of a segment; a recorder that was killed left its end open."""
    pa = arrow()
    batches, schema = [], None
    try:
        with place.open(file) as raw:
            read = raw.read()
        for index, (message, is_whole) in enumerate(_messages(read, manifest is not None)):
            if schema is None:
                schema = pa.ipc.read_schema(message)
                if manifest and (why := manifest.refusal(name, number, schema.metadata)):
                    problems.append(f"{file} is left out: {why}")
                    return None
            elif is_whole:
                batch = pa.ipc.read_record_batch(message, schema)
                batch.validate(full=True)
                batches.append(batch)
            else:
                why = "it does not match its checksum"
                problems.append(f"{file}: batch {index - 1} is damaged and left out: {why}")
    except Exception as error:
        rows = sum(batch.num_rows for batch in batches)
        problems.append(f"{file} ends within a batch after {rows} rows: {error}")
    return None if schema is None else pa.Table.from_batches(batches, schema)


def _messages(read: bytes, has_checksums: bool) -> Iterator[tuple[Any, bool]]:
    """The messages of a segment, an Arrow IPC stream, each with whether its body is as it was
    written. What pyarrow would take for a length is held against its checksum before."""
    pa = arrow()
    # Lengths in a damaged file meet the end of the buffer.
    buffer = pa.py_buffer(read)
    at = 0
    while at < len(read):
        mark, length = read[at : at + 4], int.from_bytes(read[at + 4 : at + 8], "little")
        head = read[at : at + 8 + length]
        if mark != _CONTINUATION or len(head) < 8 + length:
            raise ValueError("no whole message is there")
        if length == 0:
            return
        crc32 = checksums.stated_of_body(head)
        if crc32 is None and has_checksums:
            raise ValueError("a message without a checksum")
        message = pa.ipc.read_message(buffer.slice(at))
        body = message.body or b""
        yield message, crc32 is None or crc32 == zlib.crc32(body)
        at += len(head) + len(body)


def _last_of_each(frame: Any, key: str) -> Any:
    last = {value: row for row, value in enumerate(frame.column(key).to_pylist())}
    return frame.take(arrow().array(sorted(last.values()), "int64"))


def _in_order(frame: Any) -> Any:
    times = frame.column(TIME).to_pylist()
    order = sorted(range(len(times)), key=times.__getitem__)
    return frame if order == list(range(len(times))) else frame.take(order)
