"""Snapshots of torch's CUDA allocator. `FakeCuda` gives them the shape that torch 2.11 does
(THCPModule_memorySnapshot of torch/csrc/cuda/Module.cpp)."""

from __future__ import annotations

import os
import pickle
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRecorder, run_python, said

import memtrace


def segment() -> dict[str, Any]:
    frame = {"name": "load", "filename": "/w/train.py", "line": 7}
    block = {
        "address": 1 << 46,
        "size": 2 << 20,
        "requested_size": 2_000_000,
        "state": "active_allocated",
        "frames": [frame],
    }
    return {
        "device": 0,
        "address": 1 << 46,
        "total_size": 2 << 20,
        "allocated_size": 2 << 20,
        "active_size": 2 << 20,
        "requested_size": 2_000_000,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [block],
    }


class FakeCuda:
    """`torch.cuda`, as far as a snapshot needs it."""

    def __init__(self, is_in_use: bool = True) -> None:
        self.is_in_use = is_in_use
        self.asked: list[bool | None] = []

    def is_initialized(self) -> bool:
        return self.is_in_use

    def device_count(self) -> int:
        return 0

    def memory_snapshot(self, include_traces: bool | None = None) -> list[dict[str, Any]]:
        self.asked.append(include_traces)
        return [segment()]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeCuda:
    fake = FakeCuda()
    use(fake, monkeypatch)
    monkeypatch.chdir(tmp_path)
    return fake


def use(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = types.ModuleType("torch")
    torch.cuda = cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)


def told(message: dict[str, Any]) -> dict[str, Any]:
    """The attributes, but for the sums that every mark has where torch uses CUDA."""
    attrs = said(message).items()
    return {name: value for name, value in attrs if not name.startswith("torch_cuda_")}


def test_a_snapshot_is_a_file_with_its_time_and_a_mark_that_names_it(
    recorder: FakeRecorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    path = memtrace.torch_snapshot()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert path is not None
    assert path.startswith(f"torch-snapshot-{os.getpid()}-")
    with open(tmp_path / path, "rb") as file:
        written = pickle.load(file)
    # What stands behind the segments is not read.
    assert list(written) == ["boot_ns", "segments"]
    assert written["segments"] == [segment()]
    assert before <= written["boot_ns"] <= after
    # The history, which can be long, is not asked for.
    assert cuda.asked == [False]
    (message,) = recorder.messages()
    assert (message["kind"], message["name"]) == ("instant", "torch_snapshot")
    assert message["boot_ns"] == written["boot_ns"]
    assert told(message) == {"file": str(tmp_path / path)}
    assert message["attrs"]["rss_bytes"] > 0


def test_a_path_may_be_given_and_no_file_is_replaced(
    recorder: FakeRecorder, cuda: FakeCuda, tmp_path: Path
) -> None:
    path = tmp_path / "a.pickle"
    assert memtrace.torch_snapshot(path) == str(path)
    first = path.read_bytes()
    assert memtrace.torch_snapshot(path) is None
    assert path.read_bytes() == first
    _, second = recorder.messages()
    assert told(second)["error"].startswith("FileExistsError: ")


def test_an_older_torch_is_asked_for_all_it_has(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 0, memory_snapshot=lambda: [segment()]
    )
    use(cuda, monkeypatch)
    path = memtrace.torch_snapshot(tmp_path / "a.pickle")
    assert path is not None
    assert pickle.loads(Path(path).read_bytes())["segments"] == [segment()]


def test_what_fails_is_told_by_the_mark_and_not_raised(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(**_: bool) -> None:
        raise RuntimeError("no snapshot")

    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 0, memory_snapshot=fails
    )
    use(cuda, monkeypatch)
    path = tmp_path / "a.pickle"
    assert memtrace.torch_snapshot(path) is None
    assert not path.exists()
    (message,) = recorder.messages()
    assert told(message) == {"file": str(path), "error": "RuntimeError: no snapshot"}


def test_without_cuda_nothing_happens(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    use(FakeCuda(is_in_use=False), monkeypatch)
    assert memtrace.torch_snapshot() is None
    assert recorder.messages() == []
    assert list(tmp_path.iterdir()) == []


def test_without_torch_or_without_a_recorder_nothing_happens(tmp_path: Path) -> None:
    code = "import memtrace, sys; print(memtrace.torch_snapshot(), 'pickle' in sys.modules)"
    with_none = {"MEMTRACE_SOCKET": "", "PYTHONDONTWRITEBYTECODE": "1"}
    assert run_python("-c", code, **with_none).stdout == "None False\n"
    path = tmp_path / "a.pickle"
    fake = (
        "import sys, types; torch = types.ModuleType('torch'); sys.modules['torch'] = torch; "
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True); import memtrace; "
        f"print(memtrace.torch_snapshot({str(path)!r}))"
    )
    assert run_python("-c", fake, **with_none).stdout == "None\n"
    assert not path.exists()
