"""Marks and phases, as they arrive at a recorder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FakeRecorder, run_python, said

import memtrace
import memtrace._recorder as recorder_module
from memtrace import _host


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["kind"], message["name"]) for message in messages]


def test_a_mark_arrives_with_its_name_its_attributes_and_the_clock(recorder: FakeRecorder) -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    memtrace.mark("step", n=3, loss=0.5, who="trainer", ok=True, nothing=None)
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    (message,) = recorder.messages()
    assert message["kind"] == "instant"
    assert said(message) == {"n": 3, "loss": 0.5, "who": "trainer", "ok": True, "nothing": None}
    assert before <= message["boot_ns"] <= after
    assert "span" not in message
    assert "dropped" not in message


def test_attributes_may_have_any_name(recorder: FakeRecorder) -> None:
    memtrace.mark("a", name=1, self=2, kind=3)
    with memtrace.phase("b", name=1, self=2):
        pass
    messages = recorder.messages()
    assert said(messages[0]) == {"name": 1, "self": 2, "kind": 3}
    assert said(messages[1]) == {"name": 1, "self": 2}


def test_a_phase_begins_and_ends_with_one_span(recorder: FakeRecorder) -> None:
    with memtrace.phase("load", model="m") as load:
        with memtrace.phase("read"):
            pass
        load.set(tensors=5)
    messages = recorder.messages()
    assert told(messages) == [
        ("begin", "load"),
        ("begin", "read"),
        ("end", "read"),
        ("end", "load"),
    ]
    spans = [message["span"] for message in messages]
    assert spans[0] == spans[3] != spans[1] == spans[2]
    assert said(messages[0]) == {"model": "m"}
    assert said(messages[3]) == {"tensors": 5}
    assert messages[0]["boot_ns"] <= messages[1]["boot_ns"]


def test_a_phase_that_raises_ends_and_names_the_error(recorder: FakeRecorder) -> None:
    with pytest.raises(ZeroDivisionError), memtrace.phase("fails"):
        _ = 1 // 0
    assert said(recorder.messages()[1]) == {"error": "ZeroDivisionError"}


MIB = 1 << 20
needs_proc = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="there is no /proc")


def held(message: dict[str, Any]) -> tuple[int, int]:
    attrs = message["attrs"]
    return attrs["rss_bytes"], attrs["rss_anon_bytes"]


@needs_proc
def test_both_ends_of_a_phase_tell_what_the_process_holds_right_then(
    recorder: FakeRecorder,
) -> None:
    with memtrace.phase("load", rss_bytes="not ours") as load:
        checkpoint = b"x" * (200 * MIB)
        weights = checkpoint[: 50 * MIB]
        del checkpoint
        load.set(rss_bytes=1)
    begin, end = map(held, recorder.messages())
    assert len(weights) == 50 * MIB
    for before, after in zip(begin, end):
        assert 45 * MIB < after - before < 60 * MIB
    assert 0 < end[1] < end[0]


@needs_proc
def test_a_mark_tells_what_the_process_holds_right_then(recorder: FakeRecorder) -> None:
    memtrace.mark("before")
    checkpoint = b"x" * (200 * MIB)
    memtrace.mark("after")
    messages = recorder.messages()
    before, after = map(held, messages)
    assert len(checkpoint) == 200 * MIB
    for told, then in zip(before, after):
        assert 195 * MIB < then - told < 210 * MIB
    assert messages[1]["attrs"]["vm_size_bytes"] >= after[0]


@needs_proc
def test_a_forks_child_tells_what_it_holds_itself(recorder: FakeRecorder) -> None:
    with memtrace.phase("parent"):
        pass
    child = os.fork()
    if child == 0:
        with memtrace.phase("child"):
            memory = b"x" * (100 * MIB)
        os._exit(len(memory) == 0)
    assert os.waitpid(child, 0)[1] == 0
    messages = recorder.messages()
    assert held(messages[3])[0] - held(messages[2])[0] > 90 * MIB


@needs_proc
def test_a_descriptor_that_became_another_file_is_left_alone(
    recorder: FakeRecorder, tmp_path: Path
) -> None:
    with memtrace.phase("before"):
        pass
    opened = _host._statm
    assert opened is not None
    (tmp_path / "theirs").write_text("theirs")
    theirs = os.open(tmp_path / "theirs", os.O_RDONLY)
    os.dup2(theirs, opened[1])
    with memtrace.phase("after"):
        pass
    assert os.read(opened[1], 10) == b"theirs"
    os.close(opened[1])
    os.close(theirs)
    assert all(held(message)[0] > 0 for message in recorder.messages())


def test_where_the_kernel_does_not_say_a_phase_tells_no_memory(
    recorder: FakeRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_host, "_statm", None)
    monkeypatch.setattr(_host, "_STATM", "/nowhere/statm")
    with memtrace.phase("p"):
        pass
    assert ["attrs" in message for message in recorder.messages()] == [False, False]


def test_one_phase_object_may_be_entered_again_and_within_itself(recorder: FakeRecorder) -> None:
    section = memtrace.phase("again")
    with section, section:
        pass
    with section:
        pass
    begun = [m["span"] for m in recorder.messages() if m["kind"] == "begin"]
    assert len(set(begun)) == 3


def test_a_decorated_function_is_a_phase_per_call(recorder: FakeRecorder) -> None:
    @memtrace.phase("fib", kind="slow")
    def fib(n: int) -> int:
        """The docstring."""
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(2) == 1
    assert fib.__name__ == "fib"
    assert fib.__doc__ == "The docstring."
    messages = recorder.messages()
    assert len(messages) == 6
    assert len({message["span"] for message in messages}) == 3


def test_a_decorated_coroutine_is_a_phase_until_it_returns(recorder: FakeRecorder) -> None:
    @memtrace.phase("fetch")
    async def fetch(n: int) -> int:
        await asyncio.sleep(0.05 * n)
        return n

    async def both() -> list[int]:
        return list(await asyncio.gather(fetch(2), fetch(1)))

    assert asyncio.run(both()) == [2, 1]
    messages = recorder.messages()
    kinds = [message["kind"] for message in messages]
    assert kinds == ["begin", "begin", "end", "end"]
    # They overlap: the second to begin is the first to end.
    assert messages[1]["span"] == messages[2]["span"]


def test_a_decorated_generator_is_a_phase_while_it_is_consumed(recorder: FakeRecorder) -> None:
    @memtrace.phase("items")
    def items() -> Generator[int, int, str]:
        got = yield 1
        yield got
        return "done"

    generator = items()
    assert recorder.messages() == []
    assert next(generator) == 1
    assert generator.send(7) == 7
    assert told(recorder.messages()) == [("begin", "items")]
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "done"
    assert told(recorder.messages()) == [("end", "items")]

    left = items()
    next(left)
    left.close()
    ended = recorder.messages()[-1]
    assert ended["kind"] == "end"
    assert said(ended) == {}


def test_a_decorated_async_generator_takes_what_is_sent_and_thrown(recorder: FakeRecorder) -> None:
    closed = []

    @memtrace.phase("stream")
    async def stream() -> AsyncIterator[Any]:
        try:
            got = yield 1
            try:
                yield got
            except ValueError as error:
                yield str(error)
            yield "last"
        finally:
            closed.append(True)

    async def consume() -> None:
        items: Any = stream()
        assert await items.__anext__() == 1
        assert await items.asend("sent") == "sent"
        assert await items.athrow(ValueError("thrown")) == "thrown"
        assert [item async for item in items] == ["last"]
        left: Any = stream()
        await left.__anext__()
        await left.aclose()

    asyncio.run(consume())
    assert closed == [True, True]
    assert told(recorder.messages()) == [("begin", "stream"), ("end", "stream")] * 2


def test_a_class_is_no_function() -> None:
    with pytest.raises(TypeError, match="__init__"):
        memtrace.phase("x")(type("Thing", (), {}))


def test_threads_mark_at_once_and_none_is_lost_or_uncounted(recorder: FakeRecorder) -> None:
    count, received, dropped = 500, 0, 0

    def send() -> None:
        for n in range(count):
            memtrace.mark("m", n=n)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        messages = recorder.messages()
        received += len(messages)
        dropped += sum(message.get("dropped", 0) for message in messages)
    memtrace.mark("last")
    messages = recorder.messages()
    memtrace.mark("last")
    messages += recorder.messages()
    received += len(messages)
    dropped += sum(message.get("dropped", 0) for message in messages)
    assert received + dropped == 8 * count + 2


def test_what_a_full_queue_refuses_is_counted_and_told_next(recorder: FakeRecorder) -> None:
    for n in range(1000):
        memtrace.mark("m", n=n)
    waiting = recorder.messages()
    assert 0 < len(waiting) < 1000
    memtrace.mark("next")
    (message,) = recorder.messages()
    assert message["dropped"] == 1000 - len(waiting)
    memtrace.mark("after")
    assert "dropped" not in recorder.messages()[0]


def test_a_mark_to_a_full_queue_does_not_wait(recorder: FakeRecorder) -> None:
    began = time.perf_counter()
    for _ in range(1000):
        memtrace.mark("m")
    assert time.perf_counter() - began < 1


def test_when_the_recorder_is_gone_marks_do_nothing(recorder: FakeRecorder) -> None:
    memtrace.mark("here")
    recorder.close()
    assert memtrace.is_recording()
    memtrace.mark("gone")
    assert not memtrace.is_recording()
    with memtrace.phase("gone too"):
        memtrace.mark("and this")


@pytest.mark.parametrize("make", ["nothing", "file", "directory", "long"])
def test_a_socket_that_cannot_be_reached_means_nobody_records(make: str, tmp_path: Any) -> None:
    path = tmp_path / ("x" * 200 if make == "long" else "socket")
    if make == "file":
        path.write_text("left over")
    elif make == "directory":
        path.mkdir()
    ran = run_python(
        "-c",
        "import memtrace; memtrace.mark('x'); print(memtrace.is_recording())",
        MEMTRACE_SOCKET=str(path),
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n", "")


def test_without_the_variable_nobody_records() -> None:
    ran = run_python("-c", "import memtrace; print(memtrace.is_recording())", MEMTRACE_SOCKET="")
    assert ran.stdout == "False\n"


def test_a_mark_costs_next_to_nothing_without_a_recorder() -> None:
    assert not memtrace.is_recording()
    # 100 to 200 ns, but other programs run here too. A system call would cost more than this.
    best = min(_ns_per_mark(500) for _ in range(200))
    assert best <= 800, f"{best:.0f} ns"


def _ns_per_mark(count: int) -> float:
    mark = memtrace.mark
    began = time.perf_counter_ns()
    for _ in range(count):
        mark("step", n=3)
    return (time.perf_counter_ns() - began) / count


def test_the_child_of_a_fork_marks_for_itself(recorder: FakeRecorder) -> None:
    for _ in range(1000):
        memtrace.mark("fill")
    recorder.messages()
    with memtrace.phase("parent's"):
        recorder.messages()
        child = os.fork()
        if child == 0:
            # Neither the parent's drops nor the parent's phase are the child's to tell.
            memtrace.mark("child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        (message,) = recorder.messages()
        assert message["name"] == "child"
        assert "dropped" not in message


def test_a_phase_that_a_fork_inherited_ends_in_the_parent_only(recorder: FakeRecorder) -> None:
    with memtrace.phase("forked"):
        child = os.fork()
    if child == 0:
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert told(recorder.messages()) == [("begin", "forked"), ("end", "forked")]


# On a busy machine a reader that comes by every 10 ms can come later than a process waits for it.
PATIENT = "import memtrace, memtrace._recorder as r; r._LAST_WORDS_MS = 10_000"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_children_of_multiprocessing_mark_and_tell_what_they_dropped(
    recorder: FakeRecorder, method: str, tmp_path: Any
) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        f"""
{PATIENT}
import multiprocessing

def child():
    for _ in range(1000):
        memtrace.mark("child")

if __name__ == "__main__":
    memtrace.mark("parent")
    process = multiprocessing.get_context({method!r}).Process(target=child)
    process.start()
    process.join()
"""
    )
    with slowly_read(recorder) as collected:
        ran = run_python(str(script))
    assert (ran.returncode, ran.stderr) == (0, "")
    arrived = sum(message["name"] == "child" for message in collected)
    dropped = sum(message.get("dropped", 0) for message in collected)
    assert arrived + dropped == 1000
    assert 0 < arrived < 1000


def test_the_end_of_a_process_tells_what_was_dropped(recorder: FakeRecorder) -> None:
    with slowly_read(recorder) as collected:
        ran = run_python("-c", f"{PATIENT}\nfor _ in range(5000): memtrace.mark('m')")
    assert (ran.returncode, ran.stderr) == (0, "")
    arrived = sum(message["name"] == "m" for message in collected)
    assert 0 < arrived < 5000
    assert arrived + sum(message.get("dropped", 0) for message in collected) == 5000


@contextlib.contextmanager
def slowly_read(recorder: FakeRecorder) -> Iterator[list[dict[str, Any]]]:
    """Reads what arrives every 10 ms, so that the queue is full in between."""
    collected: list[dict[str, Any]] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(0.01):
            collected.extend(recorder.messages())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield collected
    finally:
        done.set()
        reader.join()
        collected.extend(recorder.messages())


def test_a_descriptor_that_became_somebody_elses_is_left_alone(recorder: FakeRecorder) -> None:
    memtrace.mark("before")
    active = recorder_module.active
    assert active is not None
    assert active._connection is not None
    number = active._connection[0].fileno()
    read, write = os.pipe()
    # What a daemon does: it closes everything, and the number goes to the next file.
    os.dup2(write, number)
    try:
        memtrace.mark("after")
        assert [message["name"] for message in recorder.messages()] == ["before", "after"]
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)
        assert os.fstat(number).st_ino == os.fstat(write).st_ino
    finally:
        for descriptor in (read, write, number):
            os.close(descriptor)


def test_a_signal_handler_may_mark_while_a_mark_is_sent(recorder: FakeRecorder) -> None:
    def on_alarm(*_: object) -> None:
        memtrace.mark("signal")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    received = dropped = 0
    try:
        for _ in range(300):
            for _ in range(20):
                memtrace.mark("main")
            for message in recorder.messages():
                received += message["name"] == "main"
                dropped += message.get("dropped", 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert received > 0
    assert dropped > 0
