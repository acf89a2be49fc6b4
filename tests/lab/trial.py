"""One trial: a tree that is recorded by memtrace and watched beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, TypedDict

import checks
from checks import Finding
from memory import Group
from recording import Comparison, Recording
from watch import Watch

# A recorder that has not finished by then never does.
PATIENCE_S = 120


@dataclass
class Trial:
    """A command that memtrace records, what is done meanwhile, and what is asked of the answer."""

    name: str
    command: list[str]
    # Called once it runs; the command ends on its own after it, or by what this does.
    meanwhile: Callable[[Running], None] = lambda running: None
    # What is asked beside processes, ends, peaks and sums.
    answers: Callable[[Recording, str], Iterator[Finding]] = lambda recording, group: iter(())
    options: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    poll_period_s: float = 0.1
    # What is asked of it beside a trial that ran before it, by that one's name.
    compared: dict[str, Callable[[Comparison], Finding]] = field(default_factory=dict)
    # What it holds is what its group is charged: where it is alone there, or with a neighbour.
    charged: Literal["own", "shared"] | None = None
    neighbour: list[str] = field(default_factory=list)
    # Whether it holds its most for long enough for a poll to see it.
    holds: bool = False
    # Whether what it holds stands for long enough that it is to be known well.
    stands: bool = False
    # How memtrace finds it where it runs already. The command itself is then no part of the
    # recording, but what descends from it is. Empty: memtrace starts it.
    attach: list[str] = field(default_factory=list)
    # With `attach`, what the command writes when memtrace may come.
    ready: str = ""


@dataclass
class Running:
    """A trial while it runs."""

    process: subprocess.Popen[bytes]
    watch: Watch
    log: Path

    def close_input(self) -> None:
        """Closes the command's standard input, which ends workloads that wait for it."""
        assert self.process.stdin
        self.process.stdin.close()

    def root(self) -> int:
        """The process that the command is."""
        while not (found := [each for each in self.watch.members() if each.execs]):
            self.check()
            time.sleep(0.05)
        return found[0].tgid

    def wait_for(self, text: str, seconds: float, count: int = 1) -> None:
        """Waits until the command has written a text so many times."""
        end = time.monotonic() + seconds
        while self.log.read_text(errors="replace").count(text) < count:
            self.check()
            if time.monotonic() > end:
                raise TimeoutError(f"no {text!r} within {seconds:.0f} s; see {self.log}")
            time.sleep(0.2)

    def check(self) -> None:
        """Raises when it has ended."""
        if self.process.poll() is not None:
            raise ChildProcessError(f"it ended before its time; see {self.log}")


class Output(TypedDict):
    """Where a process writes."""

    stdout: BinaryIO
    stderr: BinaryIO


@contextmanager
def stopped(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is asked to stop at the end of the block, where it has not ended by then."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def gated(
    command: list[str], directory: Path, env: dict[str, str], stdout: BinaryIO, stderr: BinaryIO
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a command once its gate is opened, and whose id is known before."""
    gate = directory / "gate"
    os.mkfifo(gate)
    line = ["/bin/sh", "-c", 'read -r _ < "$0"; exec "$@"', str(gate), *command]
    process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=env)
    try:
        with stopped(process):
            yield process
    finally:
        gate.unlink()


def open_gate(directory: Path) -> None:
    """Lets the command of `gated` run."""
    (directory / "gate").write_text("\n")


def run(trial: Trial, memtrace: Path, kept: Path, quick: bool) -> Iterator[Finding]:
    """Runs a trial, keeps what it leaves below `kept`, and holds what was recorded against what was
    seen; if `quick`, only what does not depend on how busy the machine is."""
    directory = kept / trial.name
    directory.mkdir(parents=True, exist_ok=True)
    group = make_group(trial.name)
    path = directory / "recording"
    record = [str(memtrace), "record", "-o", str(path), *trial.options, *trial.attach]
    command = group.enter(trial.command) if group else trial.command
    line = command if trial.attach else [*record, "--", *command]
    log = directory / "output"
    with open(log, "wb") as output, beside(trial, group):
        at_first = group.charged() if group else None
        told: Output = {"stdout": output, "stderr": output}
        environment = {**os.environ, **trial.environment}
        with gated(line, directory, env=environment, **told) as process:
            watch = Watch(process.pid, group, trial.poll_period_s)
            running = Running(process, watch, log)
            open_gate(directory)
            try:
                if trial.attach:
                    running.wait_for(trial.ready, PATIENCE_S)
                    with stopped(subprocess.Popen(record, **told)):
                        wait_until(path / "run.json")
                        trial.meanwhile(running)
                    running.close_input()
                else:
                    trial.meanwhile(running)
                process.wait(PATIENCE_S)
            finally:
                watch.stop()
                if group:
                    group.end()
    if group:
        group.remove()
    recording = Recording(memtrace, path)
    if trial.charged:
        yield from checks.charged(watch, at_first, recording, trial.charged)
        return
    for check in (checks.processes, checks.endings, checks.peaks, checks.sums):
        yield check(watch, recording)
    if not quick:
        if trial.holds:
            yield checks.held(watch, recording)
        if trial.stands:
            yield checks.known(watch, recording)
        yield from trial.answers(recording, group.path.name if group else "")
        for name, ask in trial.compared.items():
            before = kept / name / "recording"
            if before.exists():
                yield ask(Comparison(memtrace, before, path))
            else:
                yield Finding("diff", "beside another", f"{name} did not run", "unknown")


@contextmanager
def beside(trial: Trial, group: Group | None) -> Iterator[None]:
    """With a neighbour in the group that is no part of the tree, where the trial has one."""
    if not trial.neighbour or not group:
        yield
        return
    line = group.enter(trial.neighbour)
    with subprocess.Popen(line, stdout=subprocess.PIPE) as neighbour:
        try:
            assert neighbour.stdout
            neighbour.stdout.readline()
            yield
        finally:
            neighbour.kill()


def wait_until(path: Path) -> None:
    """Waits until a file is there, and a little longer: memtrace attaches after it."""
    end = time.monotonic() + PATIENCE_S
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"no {path}")
        time.sleep(0.05)
    time.sleep(0.5)


def make_group(name: str) -> Group | None:
    """A memory cgroup, where this machine lets us make one."""
    try:
        return Group(name)
    except OSError:
        return None
