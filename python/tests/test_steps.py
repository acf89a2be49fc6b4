"""Steps of a loop, and readings of what is held."""

from __future__ import annotations

import pytest
from conftest import FakeRecorder, run_python

import memtrace


def names(recorder: FakeRecorder, kind: str) -> list[str]:
    return [message["name"] for message in recorder.messages() if message["kind"] == kind]


def test_each_step_of_a_loop_is_a_phase(recorder: FakeRecorder) -> None:
    assert list(memtrace.mark_steps("abc")) == ["a", "b", "c"]
    messages = recorder.messages()
    assert [(message["kind"], message["name"]) for message in messages] == [
        (kind, f"step_{number}") for number in range(3) for kind in ("begin", "end")
    ]


def test_every_nth_step_is_marked_and_all_are_given(recorder: FakeRecorder) -> None:
    steps = memtrace.mark_steps(range(10), every=4, name="train_step", start=100)
    assert list(steps) == list(range(10))
    assert names(recorder, "begin") == ["train_step_100", "train_step_104", "train_step_108"]


def test_a_step_ends_when_the_loop_is_left(recorder: FakeRecorder) -> None:
    steps = memtrace.mark_steps(iter(int, 1))
    for _ in steps:
        break
    del steps
    messages = recorder.messages()
    assert [message["kind"] for message in messages] == ["begin", "end"]
    assert "error" not in messages[1].get("attrs", {})


def test_a_loop_costs_nothing_without_a_recorder() -> None:
    assert list(memtrace.mark_steps([1, 2], every=2)) == [1, 2]


@pytest.mark.parametrize("every", [0, -1])
def test_every_below_one_is_refused_at_once(every: int) -> None:
    with pytest.raises(ValueError, match="every must be 1 or more"):
        memtrace.mark_steps([], every=every)


@pytest.mark.parametrize(("value", "collected"), [("1", True), ("0", False), ("", False)])
def test_garbage_is_collected_before_a_reading_when_that_is_asked_for(
    value: str, collected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMTRACE_GC", value)
    code = """
import gc, weakref
from memtrace import _marks
gc.disable()
class Ring:
    pass
ring = Ring()
ring.itself = ring
seen = weakref.ref(ring)
del ring
_marks.collect()
print(seen() is None)
"""
    assert run_python("-c", code).stdout.strip() == str(collected)
