"""How a notebook shows the tables of a recording."""

from __future__ import annotations

import datetime
import html
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python

import memtrace

pytest.importorskip("pyarrow")

TRAINING = Path(__file__).parent / "data" / "training"
SOURCE = Path(__file__).parent.parent / "src"


def test_a_notebook_shows_a_table_as_one_and_runs_nothing_in_it() -> None:
    columns: dict[str, tuple[str, list[Any]]] = {
        "name": ("string", ["<script>x</script>", None]),
        "rss_bytes": ("int64", [3 << 20, None]),
    }
    shown = memtrace.load(TRAINING).mem.of("small", columns)._repr_html_()
    assert "<th>rss_bytes</th>" in shown
    assert "&lt;script&gt;" in shown and "<script>" not in shown
    assert "<td>3.0 MiB</td>" in shown and "<td></td>" in shown
    assert "small: 2 rows" in shown
    assert memtrace.load(TRAINING).mem._repr_html_().count("<tr>") == 21


def test_a_notebook_needs_no_pandas_for_times() -> None:
    # pandas is looked for when pyarrow is imported: in a process of its own.
    script = """
import sys

class NoPandas:
    @staticmethod
    def find_spec(name, *rest):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, NoPandas)
import memtrace

mem = memtrace.load(sys.argv[1]).mem
assert mem._repr_html_().count("<tr>") == 21
assert "pandas" not in sys.modules
print(mem.column("ts")[0].isoformat())
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    ran = subprocess.run(
        [sys.executable, "-c", script, str(TRAINING)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert datetime.datetime.fromisoformat(ran.stdout.strip()).tzinfo is not None


@pytest.mark.parametrize("state", ["closed", "recording"])
def test_a_recording_is_shown_where_pyarrow_is_not_installed(state: str, tmp_path: Path) -> None:
    recording = tmp_path / "training"
    shutil.copytree(TRAINING, recording)
    run = recording / "run.json"
    run.write_text(run.read_text().replace('"state": "closed"', f'"state": "{state}"'))
    script = """
import sys

sys.modules["pyarrow"] = None
import memtrace

print(memtrace.load(sys.argv[1]))
"""
    ran = run_python("-c", script, str(recording))
    told = r"[\d.]+ s" if state == "closed" else state
    assert re.match(rf"<Recording training: {told}, .*mem, .*process.*>$", ran.stdout), ran.stderr


def program(directory: Path, text: str) -> Path:
    """A program of that name, in a shell's words."""
    path = directory / "memtrace"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_report_is_shown_in_a_frame_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = """<p title='"&quot;'>$*</p><script>1</script>"""
    here = program(tmp_path, f"cat <<EOF\n{shown}\nEOF")
    monkeypatch.setenv("MEMTRACE", str(here))
    page = memtrace.load(TRAINING).report()
    words = f"report --format html {TRAINING}"
    assert page.html == f"""<p title='"&quot;'>{words}</p><script>1</script>\n"""
    frame = page._repr_html_()
    assert "<script>" not in frame and 'sandbox="allow-scripts allow-downloads"' in frame
    inside = frame.partition('srcdoc="')[2].rpartition('"></iframe>')[0]
    assert html.unescape(inside) == page.html and '"' not in inside
    assert len(repr(page)) < 100


def test_why_there_is_no_report_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = memtrace.load(TRAINING)
    monkeypatch.setenv("MEMTRACE", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="install memtrace, or name it in MEMTRACE"):
        recording.report()
    monkeypatch.setenv("MEMTRACE", str(program(tmp_path, "echo memtrace: damaged >&2; exit 1")))
    with pytest.raises(RuntimeError, match="memtrace: damaged"):
        recording.report()
