"""A recorder that is started from Python: the real one where MEMTRACE names it, else a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_notebook import program

import memtrace

# Writes what it was called with; ends by SIGINT.
STAND_IN = """
echo "$@" > '{words}'
case " $* " in
*" --quiet "*) ;;
*) echo "memtrace: recording with procfs (made up) to {path}" >&2 ;;
esac
trap 'exit 0' INT
while :; do sleep 0.01; done
"""


def test_a_block_is_recorded_from_its_begin_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, chosen = tmp_path / "words", tmp_path / "from here to there"
    monkeypatch.setattr(memtrace._record, "_START_SECONDS", 5.0)
    monkeypatch.setenv(
        "MEMTRACE", str(program(tmp_path, STAND_IN.format(words=words, path=chosen)))
    )
    with memtrace.record(pid=4711, options=["--quiet", "--no-findings"]) as recording:
        assert words.read_text() == "record --pid 4711 --no-findings\n"
        assert not memtrace.is_recording()
    assert recording.path == str(chosen)


def test_what_a_recorder_says_before_it_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE", str(program(tmp_path, "echo no such process >&2; exit 1")))
    with pytest.raises(RuntimeError, match="no such process"), memtrace.record(pid=4711):
        raise AssertionError("the block ran")
    monkeypatch.setenv("MEMTRACE", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="install memtrace"), memtrace.record():
        raise AssertionError("the block ran")


@pytest.mark.skipif("MEMTRACE" not in os.environ, reason="MEMTRACE names no recorder")
def test_a_real_recorder_has_the_block_its_marks_and_its_children(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with memtrace.record(tmp_path / "recording") as recording:
        with memtrace.phase("work"):
            kept = bytearray(b"x") * (64 << 20)
        code = "import memtrace; memtrace.mark('below')"
        subprocess.run([sys.executable, "-c", code], check=True)
    assert not memtrace.is_recording()
    loaded = recording.load()
    (work,) = [row for row in loaded.phases().to_arrow().to_pylist() if row["name"] == "work"]
    assert work["tgid"] == os.getpid()
    assert 60 << 20 <= work["rss_delta_bytes"] <= 70 << 20 and len(kept) == 64 << 20
    assert "below" in loaded.mark.column("name")
