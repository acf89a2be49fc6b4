"""Synthetic trees whose answers are known: the workloads of the tests crate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import answers
from checks import MIB, Finding
from recording import Recording
from trial import Running, Trial

# How long a tree that waits for its end holds still.
REST_S = 4


def trees(workload: Path) -> Iterator[Trial]:
    """Who belongs to a tree, and what it holds. Together they take less than a minute."""

    def tree(name: str, *words: str, holds: bool = False, rests: bool = False) -> Trial:
        trial = Trial(name, [str(workload), *words], holds=holds or rests)
        if rests:
            trial.meanwhile, trial.answers = rest, at_rest
        return trial

    # Short-lived children of short-lived children: who is missed by a poll.
    yield tree("forkstorm", "forkstorm", "--count", "400", "--at-once", "16", "--life-us", "2000")
    yield tree("vfork", "vforkchild", "--bytes", "64M")
    yield tree("execs", "execs", "--count", "40")
    yield tree("daemons", "daemons", "--count", "4", "--bytes", "4M", "--hold-ms", "500")
    yield tree("leader-exit", "leader-exit", "--bytes", "64M", "--hold-ms", "500")
    # Pages that several processes hold: what is counted once.
    yield tree("cow", "cow", "--bytes", "128M", "--processes", "4", rests=True)
    yield tree("shm", "shm", "--bytes", "128M", "--processes", "3", "--hold-ms", "2500", holds=True)
    yield tree("household", "household", "--processes", "12", rests=True)


def loops(workload: Path) -> Iterator[Trial]:
    """What is said of a loop that leaks, and of one that does not."""
    program = str(workload)
    yield Trial(
        "leak",
        [program, "phases", "--bytes", "64M", "--steps", "16", "--leak", "4M", "--gap-ms", "60"],
        answers=leaking,
    )
    yield Trial(
        "steady",
        [program, "phases", "--bytes", "64M", "--steps", "16", "--leak", "0", "--gap-ms", "60"],
        answers=steady,
    )


def rest(running: Running) -> None:
    """Lets a tree hold still, and ends it."""
    running.root()
    time.sleep(REST_S)
    running.close_input()


def at_rest(recording: Recording, group: str) -> Iterator[Finding]:
    """What the ledger leaves over of a tree that held still."""
    if group:
        yield from answers.residuals(recording, group)


def leaking(recording: Recording, group: str) -> Iterator[Finding]:
    """A loop that keeps 4 MiB a step."""
    yield answers.slope(recording, "step_<N>_work", 4 * MIB)
    yield answers.grower(recording, "memtrace-workl")


def steady(recording: Recording, group: str) -> Iterator[Finding]:
    """The same loop without the leak."""
    yield answers.no_grower(recording)
