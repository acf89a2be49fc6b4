"""Recordings of which files are missing, doubled, exchanged or of another recording: it is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import memtrace
from memtrace._recording.findings import NAMES

pytest.importorskip("pyarrow")

NAME = "steps_that_leak"


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


def test_a_part_of_another_recording_is_told_and_left_out(copy: Path) -> None:
    run = json.loads((copy / "run.json").read_text())
    of_other = f"{int(run['id'], 16) ^ 1:032x}"
    text = (copy / "run.json").read_text().replace(run["id"], of_other)
    (copy / "run.json").write_text(text)
    told = problems(copy)
    assert any(f"mem/part-00001.parquet is left out: it is of another recording, {run['id']}"
               in problem for problem in told)  # fmt: skip
    assert any("manifest.jsonl is of another recording" in problem for problem in told)
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
