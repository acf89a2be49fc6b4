"""Python's own heap, told when tracemalloc is on."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
from conftest import FakeRecorder, run_python, said

import memtrace


@pytest.fixture
def tracing() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def test_without_tracemalloc_there_is_nothing_to_tell(recorder: FakeRecorder) -> None:
    assert memtrace.python_heap(top=3) is None
    with memtrace.phase("p"):
        pass
    assert [said(message) for message in recorder.messages()] == [{}, {}]


@pytest.mark.usefixtures("tracing")
def test_the_mark_has_current_and_peak_and_the_largest_sites(recorder: FakeRecorder) -> None:
    kept = [bytearray(1 << 20) for _ in range(4)]
    del kept[2:]
    heap = memtrace.python_heap(top=2)
    assert heap is not None
    (message,) = recorder.messages()
    attrs = message["attrs"]
    assert message["name"] == "python_heap"
    assert attrs["current_bytes"] == heap.current_bytes
    assert 2 << 20 <= attrs["current_bytes"] < 3 << 20
    assert 4 << 20 <= attrs["peak_bytes"] < 5 << 20
    assert len(attrs["top"]) == 2
    largest = attrs["top"][0]
    assert largest["file"] == __file__
    assert largest["line"] > 0
    assert largest["size_bytes"] >= 2 << 20
    assert largest["count"] >= 2


@pytest.mark.usefixtures("tracing")
def test_marks_phases_and_peaks_tell_it(recorder: FakeRecorder) -> None:
    kept = bytearray(8 << 20)
    memtrace.mark("m")
    with memtrace.phase("p"), memtrace.peak("q"):
        kept += bytes(8 << 20)
    told = [message for message in recorder.messages() if message["kind"] != "peak"]
    assert [message["name"] for message in told] == ["m", "p", "q", "q", "p"]
    sizes = [message["attrs"]["python_heap_bytes"] for message in told]
    assert all(8 << 20 <= size < 9 << 20 for size in sizes[:3])
    assert all(16 << 20 <= size < 17 << 20 for size in sizes[3:])
    for message in told:
        attrs = message["attrs"]
        assert attrs["python_heap_bytes"] <= attrs["python_heap_peak_bytes"]


@pytest.mark.usefixtures("tracing")
def test_without_a_recorder_the_figures_are_returned_all_the_same() -> None:
    heap = memtrace.python_heap(top=5)
    assert heap is not None
    assert heap.current_bytes > 0


@pytest.mark.parametrize("how", ["option", "variable", "call"])
def test_it_is_seen_however_it_was_switched_on(how: str) -> None:
    code = "import memtrace; print(memtrace.python_heap(top=1) is not None)"
    if how == "option":
        ran = run_python("-X", "tracemalloc", "-c", code)
    elif how == "variable":
        ran = run_python("-c", code, PYTHONTRACEMALLOC="1")
    else:
        ran = run_python("-c", f"import tracemalloc; tracemalloc.start(); {code}")
    assert (ran.stdout, ran.stderr) == ("True\n", "")


def test_tracemalloc_is_never_imported_nor_started() -> None:
    code = "import memtrace, sys; memtrace.python_heap(); print('tracemalloc' in sys.modules)"
    assert run_python("-c", code).stdout == "False\n"
