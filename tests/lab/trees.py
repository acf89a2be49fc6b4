"""Synthetic trees whose answers are known: the workloads of the tests crate."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import answers
from checks import MIB, Finding
from recording import Recording
from trial import Running, Trial

PROGRAMS = Path(__file__).parent / "programs"

# How long a tree that waits for its end holds still.
REST_S = 4

# The phase of the loops, and the role of the program.
STEP, ROLE = "step_<N>_work", "main"


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


def large(workload: Path) -> Iterator[Trial]:
    """Trees that hold so much for so long that it is to be known well."""

    def stands(name: str, *command: str) -> Trial:
        return Trial(name, list(command), holds=True, stands=True)

    holdings = stands("holdings", str(workload), "holdings", "--bytes", "512M")
    # At its peak children have written to all that they inherited, which no counter tells: the
    # usual budget takes longer than it stands to read so much (docs/limits.md).
    holdings.options = ["--budget", "100"]
    yield holdings
    children = stands("cow-large", str(workload), "cow", "--bytes", "512M", "--processes", "4")
    children.meanwhile = rest
    yield children
    for method in ("fork", "spawn"):
        program = [sys.executable, str(PROGRAMS / "shared_workers.py"), method]
        yield stands(f"shared-workers-{method}", *program)


def loops(workload: Path) -> Iterator[Trial]:
    """What is said of a loop that leaks, and of one that does not; and of both together."""

    def loop(name: str, leak: str) -> Trial:
        words = ["phases", "--bytes", "64M", "--steps", "16", "--leak", leak, "--gap-ms", "120"]
        return Trial(name, [str(workload), *words], answers=leaking if leak != "0" else steady)

    yield loop("steady", "0")
    again = loop("steady-again", "0")
    again.compared["steady"] = answers.quiet_diff
    yield again
    leak = loop("leak", "4M")
    leak.compared["steady"] = lambda diff: answers.telling_diff(diff, STEP, ROLE)
    yield leak


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
    yield answers.slope(recording, STEP, 4 * MIB)
    yield answers.grower(recording, ROLE)


def steady(recording: Recording, group: str) -> Iterator[Finding]:
    """The same loop without the leak."""
    yield answers.no_grower(recording)
