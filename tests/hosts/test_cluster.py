"""`memtrace.cluster.report`: threads, tasks of Ray and `memtrace report` give the same bytes."""

from __future__ import annotations

import os
import shutil
import sys
import threading
from pathlib import Path

import memtrace.cluster
import pytest
import ray

from conftest import REPOSITORY, told
from ray_cluster import add, running

# As make_root of python/tests has it.
RECORDINGS = 3
MAKE = """
import pathlib, sys
from recipes import make_root
make_root(*map(pathlib.Path, sys.argv[1:]))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "root"
    golden = os.environ["MEMTRACE_GOLDEN_DIR"]
    path = str(REPOSITORY / "python/tests")
    told(sys.executable, "-c", MAKE, golden, place, PYTHONPATH=path)
    return place


def wrapper(place: Path, program: Path, before: str) -> str:
    """memtrace, behind lines of a shell that come first when it reduces."""
    script = place / "memtrace"
    script.write_text(
        f'#!/bin/sh\nif [ "$2" = --reduce ]; then\n{before}\nfi\nexec {program} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_threads_say_what_the_program_says(root: Path, program: Path) -> None:
    report = memtrace.cluster.report(root, program=str(program))
    assert report.text == told(program, "report", root)
    assert report.json == told(program, "report", root, "--format", "json")
    assert report["recording_count"] == RECORDINGS
    assert report.problems == {}
    run = memtrace.cluster.report(root / "run=4711", program=str(program))
    assert run.json == report.json


def test_an_address_reports_the_run_that_is_named_and_what_can_not_be_read_is_told(
    root: Path, program: Path
) -> None:
    older = root / "run=older"
    shutil.copytree(root / "run=4711", older)
    broken = next((older).glob("host=*")) / "rec=19990101T000000Z"
    broken.mkdir()
    (broken / "run.json").write_text("{}")
    for place in (str(root), f"file://{root}"):
        report = memtrace.cluster.report(place, run="older", program=str(program))
        assert report["run"] == "older"
        assert report.json == told(program, "report", place, "--run", "older", "--format", "json")
        assert any("rec=19990101T000000Z" in where for where in report.problems)


def test_a_worker_that_is_lost_and_a_node_that_is_lost_change_nothing(
    root: Path, program: Path, tmp_path: Path
) -> None:
    expected = memtrace.cluster.report(root, program=str(program))
    # The first one to come has its worker killed; all take a while.
    lost = f"mkdir {tmp_path}/lost 2>/dev/null && kill -9 $PPID\nsleep 3"
    slow = wrapper(tmp_path, program, lost)
    with running(nodes=2) as cluster:
        third = add(cluster)
        remover = threading.Timer(4, cluster.remove_node, [third])
        remover.start()
        report = memtrace.cluster.report(root, engine="ray", program=slow)
        remover.join()
    assert (tmp_path / "lost").exists()
    assert report.problems == {}
    assert report.json == expected.json
    assert report.text == expected.text


def test_a_recording_that_cannot_be_read_is_told_and_the_others_used(
    root: Path, program: Path
) -> None:
    (broken,) = root.glob("run=4711/host=node2/rec=*")
    (broken / "run.json").write_text("{")
    report = memtrace.cluster.report(root, program=str(program))
    assert list(report.problems) == [str(broken)]
    assert report["recording_count"] == RECORDINGS - 1
    with running(nodes=1):
        by_ray = memtrace.cluster.report(root, engine="ray", program=str(program))
    assert by_ray.json == report.json
    assert by_ray.problems == report.problems


def test_no_recording_is_an_error(tmp_path: Path, program: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no recording"):
        memtrace.cluster.report(tmp_path, program=str(program))
    with pytest.raises(ValueError, match="engine is one of local, ray"):
        memtrace.cluster.report(tmp_path, engine="spark")
    assert not ray.is_initialized()
    shutil.rmtree(tmp_path)
