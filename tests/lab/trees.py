"""Synthetic trees whose answers are known: the workloads of the tests crate."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import answers
from checks import MIB, Finding
from recording import Recording
from trial import Running, Trial


def trees(workload: Path) -> Iterator[Trial]:
    """All of them; together they take less than a minute."""
    program = str(workload)

    def tree(name: str, *words: str, rest_s: float | None = None) -> Trial:
        """One that ends on its own, or once its standard input closes after it held still."""

        def end(running: Running) -> None:
            if rest_s:
                running.root()
                time.sleep(rest_s)
                running.close_input()

        return Trial(name, [program, *words], end, residual_of)

    # Short-lived children of short-lived children: who is missed by a poll.
    yield tree("forkstorm", "forkstorm", "--count", "400", "--at-once", "16", "--life-us", "2000")
    yield tree("vfork", "vforkchild", "--bytes", "64M")
    yield tree("execs", "execs", "--count", "40")
    yield tree("daemons", "daemons", "--count", "4", "--bytes", "4M", "--hold-ms", "500")
    yield tree("leader-exit", "leader-exit", "--bytes", "64M", "--hold-ms", "500")
    # Pages that several processes hold: what is counted once.
    yield tree("cow", "cow", "--bytes", "128M", "--processes", "4", rest_s=4)
    yield tree("shm", "shm", "--bytes", "128M", "--processes", "3", "--hold-ms", "2500")
    yield tree("household", "household", "--processes", "12", rest_s=4)
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


def residual_of(recording: Recording, group: str) -> Iterator[Finding]:
    """What the ledger leaves over, where the tree held enough for one."""
    if group and answers.peak_bytes(recording) >= 100 * MIB:
        yield from answers.residuals(recording, group)


def leaking(recording: Recording, group: str) -> Iterator[Finding]:
    """A loop that keeps 4 MiB a step."""
    yield answers.slope(recording, "step_<N>_work", 4 * MIB)
    yield answers.grower(recording, "memtrace-workl")


def steady(recording: Recording, group: str) -> Iterator[Finding]:
    """The same loop without the leak."""
    yield answers.no_grower(recording)
