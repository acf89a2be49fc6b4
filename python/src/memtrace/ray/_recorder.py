"""One recorder of one node: started beside its raylet, asked, and ended.

Runs on the node, in a worker of Ray that ends with its answer: one that only waits takes 70 MiB and
a hundredth of a core. So the recorder is nobody's child, and a file in Ray's session says which
process it is. It ends with its raylet.

Nothing here needs more than Python's own library: Ray carries this module to nodes that do not
have the package.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_PROC = "/proc"
# How long a recorder may take until it says that it records, and in what words.
_START_SECONDS = 20.0
_BEGUN = "recording with"
_LOOK_SECONDS = 0.1
# Of what it says, the first lines (how it observes) and the last (how it ended).
_FIRST_LINES, _LAST_LINES = 2, 6

Told = dict[str, Any]
"""What is told of a node: `state` (`recording`, `ended`, `closing`, `failed`, `absent`), `host`,
`pid`, `log`, and in `says` what the recorder wrote to it."""


class Raylet(NamedTuple):
    """The raylet that started this worker."""

    pid: int
    session: Path

    @classmethod
    def own(cls) -> Raylet:
        """`RuntimeError` where the parent is none."""
        pid = os.getppid()
        session = _session_of(pid)
        if session is None:
            raise RuntimeError(f"process {pid}, which started this worker, is not a raylet")
        return cls(pid, session)

    def target(self) -> list[str]:
        """What the recorder records: the cluster's processes on this machine, drivers too. Where
        several raylets of the session share the machine, whose processes have the same names, those
        of this one's cgroup; where they share that as well, what it started."""
        pids = (int(entry) for entry in os.listdir(_PROC) if entry.isdigit())
        others = [pid for pid in pids if pid != self.pid and _session_of(pid) == self.session]
        if not others:
            return [f"--ray={self.session}"]
        group = _memory_cgroup(self.pid)
        if group not in ("/", None) and group not in map(_memory_cgroup, others):
            return ["--cgroup", str(group)]
        return ["--pid", str(self.pid)]


def start(node: str, host: str, program: str, words: Sequence[str]) -> Told:
    """Starts `program record` with these words where none runs, and waits until it says that it
    records."""
    raylet = Raylet.own()
    known = _Known.read(raylet.session, node)
    if known is not None and known.is_alive():
        return known.told()
    command = [program, "record", *raylet.target(), "--host", host, *words]
    log = raylet.session / "logs" / f"memtrace-{node[:12]}.log"
    try:
        pid = _start_detached(command, log, raylet.pid)
    except OSError as error:
        return {"state": "failed", "host": host, "says": [f"failed to start {program}: {error}"]}
    known = _Known(_file(raylet.session, node), host, pid, _started_at(pid), str(log))
    known.write()
    deadline = time.monotonic() + _START_SECONDS
    while known.is_alive() and time.monotonic() < deadline:
        if any(_BEGUN in line for line in known.says()):
            break
        time.sleep(_LOOK_SECONDS)
    told = known.told()
    if told["state"] != "recording":
        told["state"] = "failed"
    return told


def status(node: str) -> Told:
    """What the recorder of this node does."""
    known = _Known.read(Raylet.own().session, node)
    return {"state": "absent"} if known is None else known.told()


def stop(node: str, timeout: float) -> Told:
    """Has the recorder close its recording and carry what is left to the root, and waits for it so
    long. It is left to go on where it takes longer."""
    known = _Known.read(Raylet.own().session, node)
    if known is None:
        return {"state": "absent"}
    known.ask_to_end()
    deadline = time.monotonic() + timeout
    while known.is_alive() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    told = known.told()
    if told["state"] == "recording":
        told["state"] = "closing"
    return told


class _Known(NamedTuple):
    """A recorder that was started here."""

    file: Path
    host: str
    pid: int
    started_at: int | None
    """In clock ticks since boot: process ids are used again."""
    log: str

    @classmethod
    def read(cls, session: Path, node: str) -> _Known | None:
        file = _file(session, node)
        try:
            kept = json.loads(file.read_text())
            return cls(file, kept["host"], kept["pid"], kept["started_at"], kept["log"])
        except FileNotFoundError:
            return None

    def write(self) -> None:
        self.file.parent.mkdir(mode=0o700, exist_ok=True)
        kept = {key: value for key, value in self._asdict().items() if key != "file"}
        self.file.write_text(json.dumps(kept))

    def is_alive(self) -> bool:
        return self.started_at is not None and _started_at(self.pid) == self.started_at

    def ask_to_end(self) -> None:
        if self.is_alive():
            os.kill(self.pid, signal.SIGTERM)

    def says(self) -> list[str]:
        try:
            lines = Path(self.log).read_text(errors="replace").splitlines()
        except OSError as error:
            return [f"its log can't be read: {error}"]
        if len(lines) <= _FIRST_LINES + _LAST_LINES:
            return lines
        return [*lines[:_FIRST_LINES], "…", *lines[-_LAST_LINES:]]

    def told(self) -> Told:
        state = "recording" if self.is_alive() else "ended"
        return {
            "state": state,
            "host": self.host,
            "pid": self.pid,
            "log": self.log,
            "says": self.says(),
        }


def _file(session: Path, node: str) -> Path:
    return session / "memtrace" / f"{node}.json"


def _start_detached(command: Sequence[str], log: Path, raylet: int) -> int:
    """Starts it as nobody's child, in a session of its own: Ray ends what its workers leave behind.
    A shell hands it to the first process, and ends it when the raylet has ended."""
    program = subprocess.run(
        ["sh", "-c", 'command -v "$0"', command[0]], capture_output=True, check=False
    )
    if program.returncode != 0:
        raise FileNotFoundError(f"there is no program {command[0]} on this node")
    started = subprocess.run(
        ["sh", "-c", _DETACH, str(log), str(raylet), _WATCH, *command],
        stdout=subprocess.PIPE,
        start_new_session=True,
        check=True,
    )
    return int(started.stdout)


# A recorder of one process ends with it. A signal would then have it leave what is to be carried.
_WATCH = """
case $0 in --pid) exit ;; esac
while kill -0 "$1" && kill -0 "$2"; do sleep 5; done
kill -0 "$1" || kill -TERM "$2"
"""
# The shell that watches has its own words, and not those of the recorder, which name the session:
# by that name Ray's processes are known.
_DETACH = """
raylet=$1 watch=$2
shift 2
"$@" >"$0" 2>&1 </dev/null &
recorder=$!
sh -c "$watch" "${3%%=*}" "$raylet" "$recorder" >/dev/null 2>&1 </dev/null &
echo "$recorder"
"""


def _started_at(pid: int) -> int | None:
    """None where it has ended, also where nobody has taken notice of that yet."""
    try:
        with open(f"{_PROC}/{pid}/stat") as file:
            # The name may have blanks and brackets.
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _session_of(pid: int) -> Path | None:
    """The directory of the session, where that process is a raylet."""
    try:
        with open(f"{_PROC}/{pid}/cmdline", "rb") as file:
            words = os.fsdecode(file.read()).split("\0")
    except OSError:
        return None
    if os.path.basename(words[0]) != "raylet":
        return None
    option = "--session_dir="
    return next((Path(word[len(option) :]) for word in words if word.startswith(option)), None)


def _memory_cgroup(pid: int) -> str | None:
    try:
        with open(f"{_PROC}/{pid}/cgroup") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return None
    groups = {controllers: group for _, controllers, group in lines}
    # On its own in v1, without a name in v2.
    return groups.get("memory", groups.get(""))
