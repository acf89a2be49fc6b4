"""The live view of notebooks, with a program in the place of memtrace."""

from __future__ import annotations

import contextlib
import socket
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
print("memtrace top  a <b> 3 s  ", "recording closed" if count == 2 else "data 0.1 s old", sep="")
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
    monkeypatch.delenv("MEMTRACE_SOCKET", raising=False)
    monkeypatch.setattr("memtrace._sockets.places", list)
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


def test_it_keeps_to_the_recording_that_ran_first_and_to_its_last_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    monkeypatch.delenv("MEMTRACE_SOCKET", raising=False)
    monkeypatch.setattr("memtrace._sockets.places", lambda: [str(tmp_path)])
    monkeypatch.delenv("SUDO_UID", raising=False)
    script = f"""
import pathlib, sys
seen = pathlib.Path({str(tmp_path / "seen")!r})
if seen.exists():
    sys.exit("it is gone")
seen.touch()
print(" ".join(sys.argv[1:]))
"""
    program(tmp_path, script, monkeypatch)
    with contextlib.ExitStack() as recorders:
        for name in ("7.sock", "8.sock"):
            recorder = recorders.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
            recorder.bind(str(tmp_path / name))
            (tmp_path / f"{name}.recording").symlink_to(f"/recorded/{name}")
        with pytest.raises(RuntimeError, match="name one as `path`: /recorded/7"):
            memtrace.live(every=0.01)
        # One whose recorder was killed does not run.
        (tmp_path / "8.sock").unlink()
        assert memtrace.live(every=0.01).join(30)
        first, last = (repr(one) for one in handle.shown)
        assert first == "top --once --view=processes --recording=/recorded/7.sock\n"
        assert last == f"{first}it is gone\n"
        # That of this process comes first.
        monkeypatch.setenv("MEMTRACE_SOCKET", str(tmp_path / "7.sock"))
        (tmp_path / "seen").unlink()
        assert memtrace.live(every=0.01).join(30)
        assert repr(handle.shown[2]) == first


def test_it_ends_with_a_recorder_that_was_killed_and_rests_after_a_long_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    script = f"""
import pathlib, time
seen = pathlib.Path({str(tmp_path / "seen")!r})
age = "recorder gone, data 12 s old" if seen.exists() else "data 0.1 s old"
seen.touch()
time.sleep(0.1)
print("memtrace top  a recorder gone     3 s  " + age)
"""
    program(tmp_path, script, monkeypatch)
    begin = time.monotonic()
    assert memtrace.live("run1", every=0.01).join(30)
    assert len(handle.shown) == 2
    assert time.monotonic() - begin > 1.1


def test_a_look_that_is_under_way_shows_nothing_after_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handle: Handle
) -> None:
    script = f"""
import pathlib, time
pathlib.Path({str(tmp_path / "seen")!r}).touch()
time.sleep(0.3)
print("memtrace top")
"""
    program(tmp_path, script, monkeypatch)
    view = memtrace.live("run1")
    while not (tmp_path / "seen").exists():
        time.sleep(0.01)
    view.stop()
    assert view.join(30) and not handle.shown
