"""The live view of notebooks, with a program in the place of memtrace."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

import memtrace

pytest.importorskip("IPython")


class Handle:
    def __init__(self) -> None:
        self.shown: list[Any] = []

    def update(self, what: Any) -> None:
        self.shown.append(what)


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    one = Handle()
    monkeypatch.setattr("IPython.display.display", lambda *_, **__: one)
    return one


def program(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = path / "memtrace"
    place.write_text(f"#!{sys.executable}\n{script}")
    place.chmod(0o755)
    monkeypatch.setenv("MEMTRACE", str(place))


def test_it_is_refreshed_until_the_recording_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    script = f"""
import pathlib, sys
seen = pathlib.Path({str(tmp_path / "seen")!r})
count = len(seen.read_text()) if seen.exists() else 0
seen.write_text("x" * (count + 1))
print("memtrace top  a <b>", "recording closed" if count == 2 else "")
print(" ".join(sys.argv[1:]))
"""
    program(tmp_path, script, monkeypatch)
    view = memtrace.live("run1", every=0.01, view="roles")
    assert view.join(30)
    texts = [repr(one) for one in handle.shown]
    assert len(texts) == 3 and texts[2].split("\n")[0].endswith("recording closed")
    assert texts[0].split("\n")[1] == "top --once --view=roles --recording=run1"
    assert "a &lt;b&gt;" in handle.shown[0]._repr_html_()


def test_it_stops_when_it_is_asked_to_and_says_why_there_is_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    program(tmp_path, "print('memtrace top')", monkeypatch)
    view = memtrace.live(every=0.01)
    while not handle.shown:
        time.sleep(0.01)
    view.stop()
    assert view.join(30)
    handle.shown.clear()
    program(tmp_path, "import sys; sys.exit('no recording is running')", monkeypatch)
    assert memtrace.live().join(30)
    assert [repr(one) for one in handle.shown] == ["no recording is running\n"]
    with pytest.raises(ValueError, match="more than zero"):
        memtrace.live(every=0)
    monkeypatch.setenv("MEMTRACE", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match="install memtrace"):
        memtrace.live()
