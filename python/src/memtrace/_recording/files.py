"""The files of a table: Parquet parts, and segments of the spool that are in no part yet.

The layout is that of memtrace's store. Segments and parts are numbered, and one rule says
which file a row is read from: of a segment whose number is not above that of the newest
part, the rows up to that part's cut are in parts. A part without a cut has all of them.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from . import checksums
from .table import Table, arrow

_CUT = b"memtrace.cut_boot_ns"
# More is no run.json of memtrace.
_RUN_BYTES_MAX = 1 << 24
_PART = re.compile(r"part-(\d{5,})\.parquet\Z")
_SEGMENT = re.compile(r"(\w+)-(\d{5,})\.arrows\Z")
# Tables of which only the last row of each key counts.
_KEYS = {"process": "upid"}


def newest() -> Path:
    """The newest recording in the current directory: that which began last.

    As `memtrace report` chooses: by run.json's first clock, else by the name.
    """
    found = []
    for path in Path().iterdir():
        try:
            text = _run_json(path / "run.json")
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


def _run_json(path: Path) -> bytes:
    """A file of such a name; `OSError` for a pipe or the like, which would never end."""
    # Not blocking: to open a pipe waits for who writes into it.
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    with open(file, "rb") as opened:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{path} is no file")
        return opened.read(_RUN_BYTES_MAX)


def tables_in(directory: Path) -> list[str]:
    """The names of the tables that have files, in order."""
    names = {path.parent.name for path in directory.glob("*/part-*.parquet")}
    matches = map(_SEGMENT.match, (path.name for path in directory.glob("spool/*.arrows")))
    names.update(match[1] for match in matches if match)
    return sorted(names - {"spool", "damaged"})


def parts(folder: Path) -> list[Path]:
    """The Parquet files of a table, in order."""
    return [path for _, path in _numbered(folder, _PART, 1)]


def metadata(path: Path, key: bytes) -> str | None:
    """A text that the metadata of a Parquet file has."""
    arrow()
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        value = (file.metadata.metadata or {}).get(key)
    return None if value is None else value.decode()


def read(directory: Path, name: str, problems: list[str]) -> Table:
    """Reads a table. What can't be read becomes a sentence in `problems`."""
    pa = arrow()
    frames = list(_frames(directory, name, problems, _part))
    if not frames:
        return Table(name, pa.table({}))
    frame = pa.concat_tables(frames, promote_options="default")
    if name in _KEYS:
        frame = _last_of_each(frame, _KEYS[name])
    elif "boot_ns" in frame.column_names:
        frame = _in_order(frame)
    return Table(name, frame)


def check(directory: Path, name: str, problems: list[str]) -> None:
    """Reads all of a table for the problems that `read` would find, and keeps none of it."""
    for _ in _frames(directory, name, problems, _read_through):
        pass


def _frames(
    directory: Path,
    name: str,
    problems: list[str],
    read_part: Callable[[Path], tuple[Any, int | None]],
) -> Iterator[Any]:
    """The rows of each file of a table that counts; `read_part` gives those of a part, and
    its cut."""
    newest, cut = -1, None
    for number, path in _numbered(directory / name, _PART, 1):
        try:
            for what in _damaged(path):
                problems.append(f"{name}/{path.name}: {what} does not match its checksum")
            frame, part_cut = read_part(path)
        except Exception as error:
            problems.append(f"{name}/{path.name} can't be read: {error}")
        else:
            yield frame
            newest, cut = number, part_cut
    for number, path in _numbered(directory / "spool", _SEGMENT, 2, name):
        if number <= newest and cut is None:
            continue
        frame = _segment(path, problems)
        if frame is not None:
            yield _later(frame, cut) if number <= newest and cut is not None else frame


def _numbered(
    directory: Path, pattern: re.Pattern[str], group: int, name: str | None = None
) -> list[tuple[int, Path]]:
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = pattern.match(path.name)
        if match and (name is None or match[1] == name):
            found.append((int(match[group]), path))
    return sorted(found)


def _damaged(path: Path) -> list[str]:
    import pyarrow.parquet

    with open(path, "rb") as raw, pyarrow.parquet.ParquetFile(path) as file:
        return checksums.damaged(raw, file.metadata)


def _part(path: Path) -> tuple[Any, int | None]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        return file.read(), _cut(file)


def _read_through(path: Path) -> tuple[Any, int | None]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        for _ in file.iter_batches():
            pass
        return None, _cut(file)


def _cut(file: Any) -> int | None:
    cut = (file.metadata.metadata or {}).get(_CUT)
    return None if cut is None else int(cut)


def _segment(path: Path, problems: list[str]) -> Any:
    """The complete batches of a segment; a recorder that was killed left its end open."""
    pa = arrow()
    batches, schema = [], None
    try:
        # All of it at once: lengths in a damaged file then meet the end of the buffer.
        with pa.ipc.open_stream(pa.py_buffer(path.read_bytes())) as stream:
            schema = stream.schema
            for batch in stream:
                batch.validate(full=True)
                batches.append(batch)
    except Exception as error:
        rows = sum(batch.num_rows for batch in batches)
        problems.append(f"spool/{path.name} ends within a batch after {rows} rows: {error}")
    return None if schema is None else pa.Table.from_batches(batches, schema)


def _later(frame: Any, cut: int) -> Any:
    import pyarrow.compute

    return frame.filter(pyarrow.compute.greater(frame.column("boot_ns"), cut))


def _last_of_each(frame: Any, key: str) -> Any:
    last = {value: row for row, value in enumerate(frame.column(key).to_pylist())}
    return frame.take(arrow().array(sorted(last.values()), "int64"))


def _in_order(frame: Any) -> Any:
    times = frame.column("boot_ns").to_pylist()
    order = sorted(range(len(times)), key=times.__getitem__)
    return frame if order == list(range(len(times))) else frame.take(order)
