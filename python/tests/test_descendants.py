"""What the recorder says of a section's descendants, and that nobody waits for it in vain."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import FakeRecorder

import memtrace
from memtrace import _recorder


class Answers:
    """The other end of the questions, with something to say to each."""

    def __init__(self, recorder: FakeRecorder) -> None:
        self.asked: list[Any] = []
        self.say: Callable[[socket.socket], None] = lambda _: None
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(recorder.path + ".ask")
        self.listener.listen()
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.asked.append(json.loads(connection.recv(4096)))
                # Who asked may have given up.
                with contextlib.suppress(OSError):
                    self.say(connection)

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)


@pytest.fixture
def answers(recorder: FakeRecorder) -> Iterator[Answers]:
    answers = Answers(recorder)
    yield answers
    answers.close()


def saying(text: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(text)


def test_the_recorder_is_asked_once_and_only_when_somebody_wants_to_know(
    recorder: FakeRecorder, answers: Answers
) -> None:
    answers.say = saying(b'{"v":1,"bytes":5000,"source":"events"}\n')
    with memtrace.peak("load") as section:
        pass
    begin, *_, end = recorder.messages()
    assert (begin["kind"], begin["descendants"]) == ("begin", True)
    assert "descendants" not in end
    assert answers.asked == []
    assert (section.child_peak_bytes, section.child_source) == (5000, "events")
    assert section.child_peak_bytes == 5000
    assert answers.asked == [{"v": 1, "ask": "descendants_peak", "span": begin["span"]}]


def test_a_phase_is_no_section_to_be_asked_about(recorder: FakeRecorder) -> None:
    with memtrace.phase("load"):
        pass
    assert all("descendants" not in message for message in recorder.messages())


def test_a_reason_is_given_where_the_recorder_knows_nothing(answers: Answers) -> None:
    answers.say = saying(b'{"v":1,"reason":"because"}\n')
    with memtrace.peak() as section:
        pass
    assert (section.child_peak_bytes, section.child_source) == (None, "because")


def test_without_a_recorder_it_is_unknown() -> None:
    with memtrace.peak() as section:
        pass
    assert (section.child_peak_bytes, section.child_source) == (None, "no recorder runs")


def test_where_the_socket_is_none_nobody_records(recorder: FakeRecorder) -> None:
    os.unlink(recorder.path)
    with memtrace.peak(child_timeout=60) as section:
        pass
    assert (section.child_peak_bytes, section.child_source) == (None, "no recorder runs")


def test_a_recorder_that_is_gone_is_not_waited_for(recorder: FakeRecorder) -> None:
    with memtrace.peak(child_timeout=60) as section:
        pass
    recorder.close()
    began = time.monotonic()
    assert section.child_peak_bytes is None
    assert "gone" in section.child_source
    assert time.monotonic() - began < 10


def test_a_recorder_that_ends_before_it_answers_is_not_waited_for(answers: Answers) -> None:
    with memtrace.peak(child_timeout=60) as section:
        pass
    assert section.child_peak_bytes is None
    assert "did not answer" in section.child_source


@pytest.mark.parametrize("drip", [b"", b" "])
def test_a_slow_recorder_is_waited_for_no_longer_than_asked(answers: Answers, drip: bytes) -> None:
    done = threading.Event()

    def say(connection: socket.socket) -> None:
        while not done.wait(0.02):
            connection.sendall(drip)

    answers.say = say
    with memtrace.peak(child_timeout=0.2) as section:
        pass
    began = time.monotonic()
    assert section.child_peak_bytes is None
    assert section.child_source == "the recorder did not answer within 0.2 s"
    assert 0.15 < time.monotonic() - began < 10
    done.set()


@pytest.mark.parametrize(
    "answer", [b"\xff\xfe\n", b"[]\n", b"null\n", b'{"bytes":"many"}\n', b'{"bytes":1.5}\n', b"{"]
)
def test_an_answer_that_is_none_is_unknown(answers: Answers, answer: bytes) -> None:
    answers.say = saying(answer)
    with memtrace.peak() as section:
        pass
    assert section.child_peak_bytes is None
    assert section.child_source


def test_an_endless_answer_is_cut(answers: Answers) -> None:
    answers.say = saying(b"x" * 1_000_000)
    with memtrace.peak() as section:
        pass
    assert section.child_peak_bytes is None


def test_before_its_end_and_in_another_process_there_is_no_answer(answers: Answers) -> None:
    answers.say = saying(b'{"v":1,"bytes":5,"source":"poll"}\n')
    with memtrace.peak() as section:
        assert section.child_source == "the section has not ended"
        assert section.child_peak_bytes is None
        child = os.fork()
        if child == 0:
            os._exit(section.child_source != "the section belongs to another process")
        assert os.waitpid(child, 0)[1] == 0
    assert [section.child_peak_bytes, section.child_source] == [5, "poll"]


def test_a_section_whose_marks_did_not_go_through_is_not_asked_about(
    recorder: FakeRecorder, answers: Answers
) -> None:
    for _ in range(1000):
        memtrace.mark("fill the queue")
    with memtrace.peak() as section:
        recorder.messages()
    assert section.child_peak_bytes is None
    assert "could not take the marks" in section.child_source
    assert answers.asked == []


def test_a_section_that_nobody_recorded_has_not_the_answer_of_an_earlier_one(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers.say = saying(b'{"v":1,"bytes":5,"source":"poll"}\n')
    section = memtrace.peak()
    with section:
        pass
    monkeypatch.setattr(_recorder, "active", None)
    with section:
        pass
    assert section.child_source == "no recorder runs"


def test_a_section_may_be_entered_again(answers: Answers) -> None:
    answers.say = saying(b'{"v":1,"bytes":5,"source":"poll"}\n')
    section = memtrace.peak()
    spans = []
    for _ in range(2):
        with section:
            assert section.child_peak_bytes is None
        assert section.child_peak_bytes == 5
        spans.append(answers.asked[-1]["span"])
    assert len(set(spans)) == 2
