"""The peak of a section, against the kernel and against known amounts."""

from __future__ import annotations

import asyncio
import mmap
import os
import pickle
import re
import resource
import sys
import threading
import time
import types
from typing import Any

import pytest
from conftest import FakeRecorder, run_python, said

import memtrace
from memtrace import _host
from memtrace._peak import _FIGURES

MIB = 1 << 20
# The kernel keeps RSS per CPU: 3 counters x CPUs x batch pages, batch = max(32, 2 x CPUs).
CPUS = os.cpu_count() or 1
READING = 3 * CPUS * max(32, 2 * CPUS) * 4096
# A rise is the difference of two readings, and meanwhile the interpreter, and what other tests
# left running in it, allocate a little of their own.
SLACK = 2 * READING + 4 * MIB

linux_only = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="/proc/self/clear_refs is not there"
)


def touch(mebibytes: int) -> None:
    """Makes that much memory resident, and gives it back."""
    size = mebibytes * MIB
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def more_than_we_had() -> int:
    """So many mebibytes that a child's ru_maxrss is its own: exec takes that of its parent over."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + 100


def about(amount: int | None, mebibytes: int) -> bool:
    return amount is not None and abs(amount - mebibytes * MIB) <= SLACK


def rise(section: memtrace.peak) -> int:
    assert section.bytes is not None
    assert section.begin_bytes is not None
    return section.bytes - section.begin_bytes


@linux_only
def test_the_peak_of_a_section_is_the_kernels_own_figure() -> None:
    with memtrace.peak() as section:
        touch(128)
        kernel = _host.memory().hiwater_bytes
    assert section.source == "vm_hwm"
    assert kernel is not None
    assert section.bytes is not None
    assert abs(section.bytes - kernel) <= 64 * 1024
    assert about(rise(section), 128)
    assert section.end_bytes is not None
    assert section.end_bytes < section.bytes - 100 * MIB


@linux_only
def test_a_section_does_not_see_what_was_before_it() -> None:
    touch(200)
    with memtrace.peak() as section:
        touch(20)
    assert about(rise(section), 20)


@linux_only
def test_an_inner_section_does_not_take_the_outers_peak() -> None:
    with memtrace.peak("outer") as outer:
        touch(150)
        with memtrace.peak("inner") as inner:
            touch(30)
        with memtrace.peak("second") as second:
            touch(60)
    assert about(rise(outer), 150)
    assert about(rise(inner), 30)
    assert about(rise(second), 60)


@linux_only
def test_an_outer_section_has_the_peak_of_its_inner_ones() -> None:
    with memtrace.peak() as outer:
        touch(10)
        with memtrace.peak():
            touch(90)
        touch(10)
    assert about(rise(outer), 90)


@linux_only
def test_sections_of_several_threads_overlap_without_loss() -> None:
    first_is_high, second_began = threading.Event(), threading.Event()
    sections: dict[str, memtrace.peak] = {}

    def first() -> None:
        with memtrace.peak("first") as sections["first"]:
            touch(120)
            first_is_high.set()
            second_began.wait(10)

    def second() -> None:
        first_is_high.wait(10)
        with memtrace.peak("second") as sections["second"]:
            second_began.set()
            threads[0].join()
            touch(40)

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert about(rise(sections["first"]), 120)
    assert about(rise(sections["second"]), 40)


@linux_only
def test_the_recorder_is_told_the_mark_before_each_reset(recorder: FakeRecorder) -> None:
    with memtrace.peak("outer"):
        touch(100)
        with memtrace.peak("inner"):
            pass
    messages = recorder.messages()
    told = [(message["kind"], message["name"]) for message in messages]
    assert told == [
        ("begin", "outer"),
        ("peak", "outer"),
        ("begin", "inner"),
        ("peak", "inner"),
        ("end", "inner"),
        ("end", "outer"),
    ]
    life, high = (m["attrs"]["hiwater_bytes"] for m in messages if m["kind"] == "peak")
    end = messages[-1]["attrs"]
    assert end["peak_bytes"] == high
    assert life > 0
    assert about(end["peak_bytes"] - end["begin_bytes"], 100)
    assert end["peak_source"] == "vm_hwm"


@linux_only
def test_a_mark_that_could_not_be_told_is_told_later(recorder: FakeRecorder) -> None:
    touch(100)
    for _ in range(100):
        memtrace.mark("fill the queue")
    with memtrace.peak("untold"):
        recorder.messages()
    told = [m["attrs"]["hiwater_bytes"] for m in recorder.messages() if m["kind"] == "peak"]
    now = _host.memory().rss_bytes
    assert now is not None
    assert told
    assert told[0] > now + 90 * MIB


def test_a_section_that_raises_still_has_its_peak(recorder: FakeRecorder) -> None:
    with pytest.raises(KeyError), memtrace.peak("fails") as section:
        raise KeyError
    assert section.source is not None
    assert recorder.messages()[-1]["attrs"]["error"] == "KeyError"


@linux_only
def test_the_child_of_a_fork_has_sections_of_its_own() -> None:
    with memtrace.peak() as outer:
        child = os.fork()
        if child == 0:
            with memtrace.peak() as own:
                touch(50)
            ok = about(rise(own), 50)
            outer.__exit__(None, None, None)
            os._exit(0 if ok and outer.bytes is None else 1)
        assert os.waitpid(child, 0)[1] == 0
        touch(70)
    assert about(rise(outer), 70)


def test_without_a_reset_only_a_new_high_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "reset_hiwater", lambda: False)
    # At the start and at the end of each section.
    marks = iter([100, 100, 100, 130])
    monkeypatch.setattr(_host, "memory", lambda: _host.HostMemory(next(marks), 90))
    with memtrace.peak() as flat:
        pass
    assert (flat.bytes, flat.at_most_bytes, flat.source) == (None, 100, "vm_hwm_rise")
    # Between RSS at its ends and the mark.
    error = 10 + (_host.rss_error_bytes() or 0)
    assert (flat.peak_memory_bytes, flat.peak_memory_error_bytes) == (100, error)
    assert repr(flat).startswith("<peak peak: 100 B at most (vm_hwm_rise); 90 B at the start")
    with memtrace.peak() as rising:
        pass
    assert (rising.bytes, rising.source) == (130, "vm_hwm_rise")


@linux_only
def test_a_measure_is_shown_by_its_figures() -> None:
    section = memtrace.peak("load")
    assert repr(section) == "<peak load: not ended>"
    with section:
        touch(64)
    shown = re.match(r"<peak load: ([\d.]+) MiB \(vm_hwm, ± [\d.]+ [KM]iB\); .* s>", str(section))
    assert shown is not None and section.bytes is not None
    assert abs(float(shown[1]) - section.bytes / MIB) < 0.1


def test_without_proc_getrusage_says_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "_read", lambda path: b"")
    monkeypatch.setattr(_host, "reset_hiwater", lambda: False)
    maxima = iter([50, 80])
    monkeypatch.setattr(_host, "maxrss_bytes", lambda: next(maxima))
    with memtrace.peak() as section:
        pass
    assert (section.bytes, section.source) == (80, "ru_maxrss_rise")
    assert section.begin_bytes is None
    assert section.end_bytes is None


def test_without_any_source_everything_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_host, "_read", lambda path: b"")
    monkeypatch.setattr(_host, "reset_hiwater", lambda: False)
    monkeypatch.setattr(_host, "maxrss_bytes", lambda: None)
    with memtrace.peak() as section:
        pass
    assert (section.bytes, section.source, section.end_bytes) == (None, None, None)


@linux_only
def test_a_decorated_function_gives_its_result_and_has_its_measure() -> None:
    @memtrace.peak()
    def prefill(mebibytes: int) -> str:
        """Fills."""
        touch(mebibytes)
        time.sleep(0.01)
        return "filled"

    def measured() -> Any:
        return prefill.peak  # type: ignore[attr-defined]

    assert measured() is None
    assert prefill(64) == "filled"
    first = measured()
    assert about(rise(first), 64)
    assert first.seconds >= 0.01
    assert prefill(16) == "filled"
    assert measured() is not first and about(rise(measured()), 16)
    assert (prefill.__name__, prefill.__doc__) == ("prefill", "Fills.")


def test_a_decorated_call_that_fails_has_its_measure_too() -> None:
    @memtrace.peak("named")
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        fail()
    assert fail.peak.seconds > 0  # type: ignore[attr-defined]


def test_calls_of_a_decorated_function_are_phases_by_its_name(recorder: FakeRecorder) -> None:
    @memtrace.peak()
    def inner() -> None:
        pass

    @memtrace.peak("outer")
    async def outer() -> int:
        inner()
        return 3

    assert asyncio.run(outer()) == 3
    begun = [message["name"] for message in recorder.messages() if message["kind"] == "begin"]
    assert begun == ["outer", inner.__qualname__]


def test_a_measure_can_be_sent_to_another_process(recorder: FakeRecorder) -> None:
    @memtrace.peak()
    def touches() -> None:
        touch(8)

    touches()
    measure = touches.peak  # type: ignore[attr-defined]
    copy = pickle.loads(pickle.dumps(measure))
    for name in _FIGURES:
        assert getattr(copy, name) == getattr(measure, name)
    assert copy.child_source == measure.child_source
    assert repr(copy) == repr(measure)


def test_a_static_method_is_decorated_from_below() -> None:
    with pytest.raises(TypeError, match="@staticmethod above"):
        memtrace.peak()(staticmethod(touch))


def test_a_decorator_without_parentheses_says_how_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"@memtrace.peak\(\)"):
        memtrace.peak(touch)  # type: ignore[arg-type]


@linux_only
def test_the_bound_is_the_one_of_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    with memtrace.peak() as section:
        pass
    assert section.error_bytes == READING
    release = types.SimpleNamespace(release="6.1.0-13-amd64")
    monkeypatch.setattr(os, "uname", lambda: release)
    rss_error_bytes = _host.rss_error_bytes.__wrapped__
    assert rss_error_bytes() is None
    release.release = "6.2.0"
    assert rss_error_bytes() == section.error_bytes


class FakeCuda:
    """torch.cuda, with an allocator that one can set."""

    def __init__(self) -> None:
        self.initialised = True
        self.now = [(0, 0), (0, 0)]
        self.high = [(0, 0), (0, 0)]
        self.is_capturing = False
        self.synchronized: list[int] = []

    def is_initialized(self) -> bool:
        return self.initialised

    def device_count(self) -> int:
        return len(self.now)

    def hold(self, device: int, allocated: int, reserved: int) -> None:
        self.now[device] = (allocated, reserved)
        high = self.high[device]
        self.high[device] = (max(high[0], allocated), max(high[1], reserved))

    def max_memory_allocated(self, device: int) -> int:
        return self.high[device][0]

    def max_memory_reserved(self, device: int) -> int:
        return self.high[device][1]

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def synchronize(self, device: int) -> None:
        self.synchronized.append(device)

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        names = ("allocated_bytes", "reserved_bytes")
        return {
            name: {"all": {"current": amount, "peak": 1 << 40}}
            for name, amount in zip(names, self.now[device])
        }

    def reset_peak_memory_stats(self, device: int) -> None:
        self.high[device] = self.now[device]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    torch: Any = types.ModuleType("torch")
    torch.cuda = fake
    monkeypatch.setitem(sys.modules, "torch", torch)
    return fake


def test_each_device_has_its_peak_and_nested_sections_keep_theirs(cuda: FakeCuda) -> None:
    cuda.hold(1, 900, 1000)
    cuda.hold(1, 10, 1000)
    with memtrace.peak() as outer:
        cuda.hold(0, 500, 600)
        cuda.hold(0, 5, 600)
        with memtrace.peak() as inner:
            cuda.hold(1, 40, 1000)
        cuda.hold(1, 20, 800)
    assert outer.gpu == (memtrace.GpuPeak(0, 500, 600), memtrace.GpuPeak(1, 40, 1000))
    assert inner.gpu == (memtrace.GpuPeak(0, 5, 600), memtrace.GpuPeak(1, 40, 1000))


def test_the_one_figure_is_that_of_the_device_that_worked(cuda: FakeCuda) -> None:
    cuda.hold(0, 900, 1000)
    with memtrace.peak() as section:
        cuda.hold(1, 40, 1000)
        cuda.hold(0, 910, 1000)
    figure = (section.peak_memory_bytes, section.peak_memory_of, section.peak_memory_error_bytes)
    assert figure == (40, "cuda:1", 0)
    # That a model lies on a device is no work there.
    with memtrace.peak() as section:
        touch(8)
    assert (section.peak_memory_bytes, section.peak_memory_of) == (section.bytes, "host")
    assert section.peak_memory_error_bytes == section.error_bytes


def test_the_end_waits_for_devices_in_use_but_for_no_capture(cuda: FakeCuda) -> None:
    cuda.hold(1, 10, 20)
    with memtrace.peak():
        pass
    assert cuda.synchronized == [1]
    cuda.is_capturing = True
    with memtrace.peak():
        pass
    assert cuda.synchronized == [1]


def test_cuda_that_is_initialised_in_the_section_counts_from_there(cuda: FakeCuda) -> None:
    cuda.initialised = False
    with memtrace.peak() as section:
        cuda.initialised = True
        cuda.hold(0, 7, 8)
    assert section.gpu == (memtrace.GpuPeak(0, 7, 8), memtrace.GpuPeak(1, 0, 0))


def test_marks_and_phases_tell_what_torch_holds(cuda: FakeCuda, recorder: FakeRecorder) -> None:
    memtrace.mark("start")
    with memtrace.phase("load"):
        cuda.hold(0, 500, 600)
        cuda.hold(1, 40, 100)
    mark, begin, end = map(said, recorder.messages())
    assert mark == begin == {"torch_cuda_alloc_bytes": 0, "torch_cuda_reserved_bytes": 0}
    assert end == {"torch_cuda_alloc_bytes": 540, "torch_cuda_reserved_bytes": 700}
    cuda.initialised = False
    with memtrace.phase("load"):
        pass
    assert [said(message) for message in recorder.messages()] == [{}, {}]


def test_a_driver_that_fails_means_unknown(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: int) -> int:
        raise RuntimeError("CUDA error")

    monkeypatch.setattr(cuda, "max_memory_reserved", fail)
    with memtrace.peak() as section:
        pass
    assert section.gpu is None


def test_torch_is_never_imported_nor_cuda_initialised(cuda: FakeCuda) -> None:
    cuda.initialised = False
    cuda.now.clear()
    with memtrace.peak() as section:
        pass
    assert section.gpu == ()
    code = "import memtrace, sys\nwith memtrace.peak(): pass\nassert 'torch' not in sys.modules"
    assert run_python("-c", code).returncode == 0
