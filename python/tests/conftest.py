"""What the tests share: a recorder that is just a socket, and Python in a child."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memtrace._recorder as recorder_module

SOURCES = str(Path(__file__).parent.parent / "src")


class FakeRecorder:
    """The receiving end of the protocol, as docs/marks.md has it."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "marks")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.setblocking(False)

    def raw(self) -> list[bytes]:
        """The messages that wait."""
        messages = []
        while True:
            try:
                messages.append(self.socket.recv(1 << 20))
            except BlockingIOError:
                return messages

    def messages(self) -> list[dict[str, Any]]:
        """The messages that wait, each checked against the protocol."""
        messages = []
        for raw in self.raw():
            assert len(raw) <= 32_768
            message = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
            assert message["v"] == 1
            assert message["kind"] in ("instant", "begin", "end", "peak")
            assert 1 <= len(message["name"].encode()) <= 256
            assert isinstance(message["boot_ns"], int)
            assert isinstance(message.get("attrs", {}), dict)
            messages.append(message)
        return messages

    def close(self) -> None:
        """Ends as a recorder that was killed: the file stays."""
        self.socket.close()


def said(message: dict[str, Any]) -> dict[str, Any]:
    """The attributes of a message, but for what the process held: that has its own tests."""
    held = ("rss_bytes", "rss_anon_bytes", "vm_size_bytes")
    return {name: value for name, value in message.get("attrs", {}).items() if name not in held}


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRecorder]:
    """A recorder that this process and its children mark to."""
    # Short, because a socket's path may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="mt") as directory:
        fake = FakeRecorder(Path(directory))
        connection = recorder_module.Recorder(fake.path)
        monkeypatch.setenv("MEMTRACE_SOCKET", fake.path)
        monkeypatch.setattr(recorder_module, "active", connection)
        yield fake
        fake.close()
        connection.forget_parent()


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a new interpreter that has the package on its path: `-c CODE`, or a file."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="session")
def golden() -> Path:
    """The recordings that the tests of the reports are made on, with their findings beside each
    and the report in JSON, as `cargo xtask python` has memtrace write them."""
    place = os.environ.get("MEMTRACE_GOLDEN_DIR")
    if place is None:
        pytest.skip("run `cargo xtask python`, which has memtrace write the golden recordings")
    return Path(place)
