"""Recordings of which files are missing, doubled, exchanged or of another recording: it is told."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import memtrace
from memtrace._recording.findings import NAMES
from memtrace._recording.table import Table

pytest.importorskip("pyarrow")

NAME = "steps_that_leak"
TABLES = ("mem", "process", "cgroup_mem", "mark", *NAMES)


@pytest.fixture
def copy(golden: Path, tmp_path: Path) -> Path:
    """A recording of the golden ones that may be damaged."""
    path = tmp_path / NAME
    shutil.copytree(golden / NAME, path)
    return path


def problems(path: Path) -> list[str]:
    return memtrace.load(path).problems


def test_each_part_that_is_taken_out_of_a_recording_is_told(copy: Path) -> None:
    assert problems(copy) == []
    parts = [part for part in copy.glob("*/part-*.parquet") if part.parent.name not in NAMES]
    assert len(parts) > 10
    for part in parts:
        text = part.read_bytes()
        part.unlink()
        name = f"{part.parent.name}/{part.name}"
        told = [problem for problem in problems(copy) if problem.startswith(f"{name} is missing")]
        assert len(told) == 1, name
        part.write_bytes(text)
    assert problems(copy) == []


def test_a_part_that_is_doubled_or_has_another_name_is_told_and_left_out(copy: Path) -> None:
    part, other = (copy / "mem" / f"part-0000{number}.parquet" for number in (1, 2))
    rows = len(memtrace.load(copy).mem)
    shutil.copy(part, other)
    recording = memtrace.load(copy)
    assert len(recording.mem) == rows
    assert any("mem/part-00002.parquet is left out" in problem for problem in recording.problems)
    other.unlink()
    text = part.read_bytes()
    shutil.copy(copy / "process/part-00001.parquet", part)
    told = problems(copy)
    assert any("it was file 1 of process when it was written" in problem for problem in told)
    part.write_bytes(text)
    assert problems(copy) == []


def test_a_part_of_another_recording_is_reported_and_left_out(copy: Path) -> None:
    run = json.loads((copy / "run.json").read_text())
    of_other = f"{int(run['id'], 16) ^ 1:032x}"
    text = (copy / "run.json").read_text().replace(run["id"], of_other)
    (copy / "run.json").write_text(text)
    told = problems(copy)
    assert any(f"mem/part-00001.parquet is left out: it belongs to another recording, {run['id']}"
               in problem for problem in told)  # fmt: skip
    assert any("manifest.jsonl belongs to another recording" in problem for problem in told)
    assert any("run.json does not match its checksum" in problem for problem in told)


def test_a_manifest_that_is_gone_or_cut_off_is_told_and_no_row_is_lost(copy: Path) -> None:
    path = copy / "manifest.jsonl"
    rows = len(memtrace.load(copy).mem)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    cut_off = memtrace.load(copy)
    assert any("ends before the recording does" in problem for problem in cut_off.problems)
    path.write_bytes(b"".join(lines).replace(b'"mem"', b'"mer"'))
    assert any("does not match its checksum" in problem for problem in problems(copy))
    path.unlink()
    gone = memtrace.load(copy)
    assert gone.problems == ["manifest.jsonl is missing"]
    assert len(cut_off.mem) == len(gone.mem) == rows


def add_part(path: Path, table: str, seq: int) -> int:
    """Adds the rows of the first part again, as an import adds some; answers how many they are."""
    import pyarrow.parquet

    folder = path / table
    rows = pyarrow.parquet.read_table(folder / "part-00001.parquet")
    of = json.loads((path / "run.json").read_text())["id"]
    texts = {"recording": of, "table": table, "seq": str(seq)}
    texts = {f"memtrace.{name}": text for name, text in texts.items()}
    part = folder / f"part-{seq:05}.parquet"
    pyarrow.parquet.write_table(rows.replace_schema_metadata(texts), part)
    facts = {"rows": len(rows), "bytes": part.stat().st_size, "footer_crc32": ""}
    line = json.dumps({"kind": "part", "table": table, "seq": seq, **facts})
    line = f'{line[:-1]}, "checksum": "crc32:00000000"}}\n'
    crc = f"{zlib.crc32(line.encode()):08x}"
    with open(path / "manifest.jsonl", "a") as manifest:
        manifest.write(line.replace("crc32:00000000", f"crc32:{crc}"))
    return len(rows)


def test_rows_that_are_added_twice_while_somebody_looks_are_read_each_time(copy: Path) -> None:
    recording = memtrace.load(copy)
    expected = len(recording.read("mark", ["boot_ns"]))
    for seq in (2, 3):
        expected += add_part(copy, "mark", seq)
        assert len(recording.read("mark", ["boot_ns"])) == expected
    assert not any("part-" in problem for problem in recording.problems)


def test_a_part_whose_footer_has_lost_its_checksum_is_told_and_left_out(copy: Path) -> None:
    part = copy / "mem/part-00001.parquet"
    text = bytearray(part.read_bytes())
    text[text.rindex(b"memtrace.footer_crc32")] ^= 1
    part.write_bytes(text)
    recording = memtrace.load(copy)
    assert len(recording.mem) == 0
    told = "mem/part-00001.parquet can't be read: the footer has no checksum"
    assert told in recording.problems


def answers(path: Path) -> tuple[dict[str, str], list[str]]:
    """What each view of a recording has, or why it has nothing, and the problems told then."""
    try:
        recording = memtrace.load(path)
    except (OSError, ValueError) as error:
        return {}, [str(error)]
    views: dict[str, Callable[[], Any]] = {
        "peak": recording.peak,
        "at": lambda: recording.at("peak"),
        "at by role": lambda: recording.at("peak", by="role"),
        "columns": lambda: recording.read("mem", ["boot_ns", "rss_bytes"]),
        "stretch": lambda: recording.read("mem", since=1, until=9),
        "resample": lambda: recording.resample(60),
        "names": recording.names,
        **{name: partial(recording.read, name) for name in TABLES},
    }
    found = {}
    for name, view in views.items():
        try:
            found[name] = shown(view())
        except (memtrace.FindingsError, OSError, ValueError, KeyError) as error:
            found[name] = f"refused: {error}"
    return found, recording.problems


def shown(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(shown, value))
    return str(value.to_arrow().to_pydict() if isinstance(value, Table) else value)


def faults(path: Path, file: Path) -> Iterator[str]:
    """Has one thing after the other happen to a file, and puts it back each time."""
    text = file.read_bytes()
    for part in (0.1, 0.5, 0.9, 0.99):
        at = int(len(text) * part)
        file.write_bytes(text[:at] + bytes([text[at] ^ 0x10]) + text[at + 1 :])
        yield f"a bit at {part}"
    file.write_bytes(text[: len(text) // 2])
    yield "cut off"
    file.unlink()
    yield "deleted"
    if file.suffix == ".parquet":
        other = path / "title/part-00001.parquet"
        file.write_bytes(other.read_bytes())
        yield "another table's"
        file.write_bytes(text)
        doubled = file.with_name("part-00002.parquet")
        doubled.write_bytes(text)
        yield "doubled"
        doubled.unlink()
    file.write_bytes(text)


@pytest.mark.parametrize(
    "name",
    ["mem/part-00001.parquet", "process/part-00001.parquet", "held/part-00001.parquet",
     "role_mem/part-00001.parquet", "run.json", "manifest.jsonl"],
)  # fmt: skip
def test_no_view_of_a_recording_that_is_not_whole_is_silent(copy: Path, name: str) -> None:
    whole, problems = answers(copy)
    assert problems == []
    for fault in faults(copy, copy / name):
        found, told = answers(copy)
        refused = {view for view in found if found[view].startswith("refused: ")}
        other = {view for view in found if found[view] != whole[view]} - refused
        assert told != [] or not other, (fault, other)
    assert answers(copy) == (whole, [])
