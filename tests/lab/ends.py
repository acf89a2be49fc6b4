"""How processes end, staged in programs that people run: the first line of the report names the
cause, who was killed and who did it. What is right is known by construction."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from checks import Finding, verdict
from memory import V1, V2
from recording import Recording
from trial import Output, stopped

PROGRAMS = Path(__file__).parent / "programs" / "ends"
WAIT_S = 120
# What a worker may take in the group where it meets the OOM killer, and in a tmpfs.
GROUP_BYTES, TMPFS_SIZE = 64 << 20, "16m"
# What Ray's monitor lets a worker take.
MONITORED_BYTES = 500 << 20
PORT = 8124

# Causes that each framework is tried with. Who is killed and who did it is put into the patterns.
CAUSES = {
    "stranger": r"\b{victim} .*SIGKILL from {lab}\b",
    "parent": r"\b{victim} .*SIGKILL from {driver}\b",
    "segv": r"\b{victim} .*SIGSEGV",
    "abort": r"\b{victim} .*SIGABRT from itself",
    "sigbus": r"(?s)\b{victim} .*SIGBUS from the kernel.*limit: .*{tmpfs}.*\(100%\)",
    "oom": r"\b{victim} .*was killed because",
    "memory_error": r"(?s)what_happened: the command .*limit: .*RLIMIT_AS",
    "import_error": r"the command failed after [^:]*: exit \d+",
    "terminate": r"SIGTERM from {lab}\b|the command succeeded",
    "clean": r"the command succeeded",
}
# How a program ends whom it watches.
LOGGED = {
    "monitor": {
        "ray": r"Ray's memory monitor ended .*\b{victim}\b",
        "dask": r"Dask's nanny ended .*\b{victim}\b",
        "celery": r"Celery's memory limit ended .*\b{victim}\b",
    },
    "timeout": {
        "celery": r"Celery's hard time limit ended .*\b{victim}\b",
        "gunicorn": r"gunicorn ended .*\b{victim}\b",
    },
}
# Only its parent ends a worker of these for being late, or for holding too much.
LATE = {"celery", "gunicorn"}


class Stage(NamedTuple):
    """Where a case is played."""

    python: Path
    place: Path
    cause: str

    def process(self, name: str) -> int:
        """Which process has said that it is this one; 0 where none has."""
        path = self.place / name
        return int(path.read_text()) if path.exists() else 0

    def wait_for(self, name: str) -> int:
        """The same once it has."""
        end = time.monotonic() + WAIT_S
        while not self.process(name):
            if time.monotonic() > end:
                raise TimeoutError(f"no {name} within {WAIT_S} s; see {self.place}")
            time.sleep(0.05)
        return self.process(name)


def ask_celery(stage: Stage) -> None:
    """Sends a task."""
    line = f"import on_celery; on_celery.end.delay({stage.cause!r})"
    subprocess.run([stage.python, "-c", line], cwd=PROGRAMS, env=environment(stage), check=True)


def ask_gunicorn(stage: Stage) -> None:
    """Sends a request, of which no answer comes where the worker ends by it."""
    with suppress(OSError):
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}", timeout=10).read()


def script(name: str) -> Callable[[Stage], list[str]]:
    """A program that ends by itself."""
    return lambda stage: [str(stage.python), str(PROGRAMS / f"{name}.py"), stage.cause]


def celery(stage: Stage) -> list[str]:
    limit = {"timeout": ["--time-limit=3"], "monitor": ["-linfo", "--max-memory-per-child=100000"]}
    line = [str(stage.python.with_name("celery")), "-A", "on_celery", "worker"]
    return [*line, f"--pidfile={stage.place / 'driver'}", *limit.get(stage.cause, [])]


def gunicorn(stage: Stage) -> list[str]:
    timeout = "3" if stage.cause == "timeout" else "60"
    line = [str(stage.python.with_name("gunicorn")), "-w1", f"-b127.0.0.1:{PORT}", f"-t{timeout}"]
    return [*line, f"-p{stage.place / 'driver'}", "on_gunicorn:app"]


def torchrun(stage: Stage) -> list[str]:
    agent = [str(stage.python), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*agent, str(PROGRAMS / "on_torchrun.py"), stage.cause]


class Framework(NamedTuple):
    """What is tried."""

    command: Callable[[Stage], list[str]]
    # A server is asked, and is ended by SIGTERM.
    ask: Callable[[Stage], None] | None = None


FRAMEWORKS = {
    "plain": Framework(script("plain")),
    "ray": Framework(script("on_ray")),
    "dask": Framework(script("on_dask")),
    "celery": Framework(celery, ask_celery),
    "gunicorn": Framework(gunicorn, ask_gunicorn),
    "torchrun": Framework(torchrun),
}


def cases() -> Iterator[tuple[str, str, str]]:
    """Framework, cause, and the pattern of what is right."""
    for framework in FRAMEWORKS:
        for cause, pattern in CAUSES.items():
            if cause != "parent" or framework not in {*LATE, "torchrun"}:
                yield framework, cause, pattern
        for cause, patterns in LOGGED.items():
            if framework in patterns:
                yield framework, cause, patterns[framework]


def ends(
    python: Path, memtrace: Path, kept: Path, names: list[str]
) -> Iterator[tuple[str, Finding]]:
    """Plays each case, or those that are named."""
    for framework, cause, pattern in cases():
        name = f"{framework}-{cause}"
        if names and not {name, framework, cause}.intersection(names):
            continue
        place = kept / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            stage = Stage(python, place, cause)
            yield name, play(stage, FRAMEWORKS[framework], pattern, memtrace)
        except (OSError, subprocess.SubprocessError) as error:
            yield name, Finding("the case", "runs", f"{type(error).__name__}: {error}", "MISSED")


def environment(stage: Stage) -> dict[str, str]:
    """What programs below are told by."""
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, free = (int(memory[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    threshold = (total - free + MONITORED_BYTES) / total
    own = {
        "ENDS_PLACE": stage.place,
        "ENDS_CAUSE": stage.cause,
        "ENDS_GROUP": group_path(stage.place.name),
        "ENDS_TMPFS": stage.place / "tmpfs",
        # Celery looks at what a worker holds only between two tasks.
        "ENDS_MOST": 200 << 20 if stage.place.name.startswith("celery") else 1 << 40,
        "ENDS_THRESHOLD": threshold if stage.cause == "monitor" else 1,
        "PYTHONPATH": PROGRAMS,
        "PYTHONUNBUFFERED": 1,
        "PATH": f"{stage.python.parent}:{os.environ['PATH']}",
        "C_FORCE_ROOT": 1,
        "OMP_NUM_THREADS": 1,
    }
    return {**os.environ, **{name: str(value) for name, value in own.items()}}


def group_path(name: str) -> Path:
    """The group that is entered to be killed there."""
    controller = V1 if (V1 / "memory.limit_in_bytes").exists() else V2
    return controller / f"memtrace-lab-{name}"


@contextmanager
def small_group(name: str, limit_bytes: int) -> Iterator[Path]:
    """A group with a limit."""
    group = group_path(name)
    group.mkdir(exist_ok=True)
    limit = "memory.limit_in_bytes" if group.parent == V1 else "memory.max"
    (group / limit).write_text(str(limit_bytes))
    try:
        yield group
    finally:
        with suppress(OSError):
            group.rmdir()


@contextmanager
def small_tmpfs(path: Path) -> Iterator[None]:
    """A tmpfs that is soon full."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_SIZE}", "none", str(path)]
    subprocess.run(mount, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def play(stage: Stage, framework: Framework, pattern: str, memtrace: Path) -> Finding:
    """Plays one case, and holds the report against what is right."""
    path, log = stage.place / "recording", stage.place / "output"
    # Those that end whom they watch say so in the output.
    reads = ["--marks-from-output"] if stage.cause in LOGGED else []
    line = [str(memtrace), "record", "-o", str(path), *reads, "--", *framework.command(stage)]
    group = small_group(stage.place.name, GROUP_BYTES)
    with group, small_tmpfs(stage.place / "tmpfs"), open(log, "wb") as output:
        told: Output = {"stdout": output, "stderr": output}
        with stopped(subprocess.Popen(line, cwd=PROGRAMS, env=environment(stage), **told)) as run:
            meanwhile(stage, framework, run)
            run.wait(WAIT_S)
    recording = Recording(memtrace, path)
    known = {
        "victim": stage.process("victim"),
        "driver": stage.process("driver"),
        "lab": os.getpid(),
        "tmpfs": re.escape(str(stage.place / "tmpfs")),
    }
    asked = pattern.format(**known)
    # Other lines than the first one are asked for limits only.
    found = recording.answer("" if "(?s)" in asked else "what_happened")
    return Finding("the first line", asked, found, verdict(bool(re.search(asked, found))))


def meanwhile(stage: Stage, framework: Framework, run: subprocess.Popen[bytes]) -> None:
    """What a person and a client do while it runs."""
    if stage.cause == "import_error":
        return
    if framework.ask:
        stage.wait_for("driver")
        time.sleep(3)
        with suppress(subprocess.SubprocessError):
            framework.ask(stage)
    victim = stage.wait_for("victim")
    driver = stage.process("driver")
    time.sleep(1)
    if stage.cause == "stranger":
        os.kill(victim, signal.SIGKILL)
    if stage.cause == "terminate":
        os.kill(driver, signal.SIGTERM)
    elif framework.ask:
        end = time.monotonic() + 10
        while Path(f"/proc/{victim}").exists() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(3)
        # It can have failed with its worker.
        with suppress(ProcessLookupError):
            os.kill(driver, signal.SIGTERM)
