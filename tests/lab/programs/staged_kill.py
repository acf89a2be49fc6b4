"""A tree that meets the OOM killer at the limit of its group, as its seed says: who grows is known.
Says who is who as a line of JSON, and ends once one of it was killed."""

import json
import mmap
import os
import random
import signal
import sys
import time
from pathlib import Path

MIB = 1 << 20
LIMIT_BYTES = 256 * MIB
KINDS = ("leak", "trigger", "spike", "shared", "copies", "other", "other_spike", "other_beside")
KINDS += ("dead_writers", "dead_appenders")
BEGIN_S = 3.0


class Held:
    """Memory that is taken page by page."""

    def __init__(self) -> None:
        self.parts: list[mmap.mmap] = []

    def take(self, size: int) -> None:
        part = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for at in range(0, size, 4096):
            part[at] = 1
        self.parts.append(part)


def grow(step: int, gap_s: float, most: int = 1 << 40, after_s: float = BEGIN_S) -> None:
    """Takes a step and rests, until it has the most that it takes; then it holds that."""
    held, has = Held(), 0
    time.sleep(after_s)
    while has < most:
        held.take(step)
        has += step
        time.sleep(gap_s)
    time.sleep(600)


def grow_nearly(step: int, gap_s: float) -> None:
    """Grows until little is left of the limit, and holds that."""
    held, group = Held(), Path(os.environ["LAB_GROUP"])
    usage = next(
        group / name
        for name in ("memory.current", "memory.usage_in_bytes")
        if (group / name).exists()
    )
    time.sleep(BEGIN_S)
    while int(usage.read_text()) < LIMIT_BYTES - 12 * MIB:
        held.take(step)
        time.sleep(gap_s)
    time.sleep(600)


def hold(size: int) -> None:
    grow(size, 0, size, 0)


def child(body, *args) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            body(*args)
        finally:
            os._exit(0)
    return pid


def share(path: str, step: int, gap_s: float) -> None:
    """Maps a file of a tmpfs and writes to it."""
    size = 512 * MIB
    with open(path, "w+b") as file:
        file.truncate(size)
        segment = mmap.mmap(file.fileno(), size)
        time.sleep(BEGIN_S)
        for at in range(0, size, 4096):
            segment[at] = 1
            if at % step == 0:
                time.sleep(gap_s)


def copy(size: int, gap_s: float) -> None:
    """Forks children that write to what they inherited."""
    held = Held()
    held.take(size)
    for _ in range(6):
        if os.fork() == 0:
            time.sleep(BEGIN_S)
            for at in range(0, size, 4096):
                held.parts[0][at] = 2
                if at % MIB == 0:
                    time.sleep(gap_s)
            time.sleep(600)
    time.sleep(600)


def write(directory: str, size: int, gap_s: float, is_one: bool) -> None:
    """Starts a process for each part, which writes it and ends."""
    time.sleep(BEGIN_S)
    for number in range(1000):
        pid = os.fork()
        if pid == 0:
            path = f"{directory}/all" if is_one else f"{directory}/part{number:03}"
            with open(path, "ab") as file:
                file.write(b"x" * size)
            os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(gap_s)


def play(seed: int, directory: str) -> None:
    kind, rng = KINDS[seed % len(KINDS)], random.Random(seed)
    said = {"kind": kind, "root": os.getpid()}
    others = [child(hold, rng.randint(4, 24) * MIB) for _ in range(rng.randint(1, 3))]
    step, gap_s = rng.choice((1, 2, 4)) * MIB, rng.uniform(0.02, 0.08)
    if kind == "leak":
        said["culprit"] = child(grow, step, gap_s)
    elif kind == "trigger":
        said["culprit"] = child(grow_nearly, step, gap_s)
        others.append(child(grow, MIB, 0.3))
    elif kind == "spike":
        others.append(child(grow, MIB, 0.1, 60 * MIB))
        said["culprit"] = child(grow, 400 * MIB, 0, 400 * MIB, BEGIN_S + 5)
    elif kind == "shared":
        said["culprit"] = child(share, f"{directory}/segment", step, gap_s)
    elif kind == "copies":
        said["culprit"] = child(copy, 50 * MIB, gap_s)
    elif kind.startswith("other"):
        # A server that holds most, and does not grow, or by less.
        others.append(child(hold, 130 * MIB))
        if kind == "other_beside":
            others.append(child(grow, 64 << 10, 0.1))
    else:
        others.append(child(hold, 60 * MIB))
        is_one = kind == "dead_appenders"
        said["writers_of"] = directory
        said["parent"] = child(write, directory, rng.choice((4, 8)) * MIB, 0.15, is_one)
    said["others"] = others
    print(json.dumps(said), flush=True)
    mine = {*others, *(said[key] for key in ("culprit", "parent") if key in said)}
    try:
        while os.waitpid(-1, 0)[0] not in mine:
            pass
        time.sleep(0.5)
    finally:
        os.killpg(0, signal.SIGKILL)


def beside(seed: int) -> None:
    """What grows in the group and is no part of the tree."""
    kind, rng = KINDS[seed % len(KINDS)], random.Random(seed)
    if kind == "other_spike":
        grow(300 * MIB, 0, 300 * MIB, BEGIN_S + 3)
    else:
        grow(rng.choice((1, 2)) * MIB, rng.uniform(0.02, 0.08), after_s=BEGIN_S + 2)


if __name__ == "__main__":
    if sys.argv[2] == "beside":
        beside(int(sys.argv[1]))
    else:
        os.setpgid(0, 0)
        play(int(sys.argv[1]), sys.argv[2])
