"""Fifty kills by the OOM killer at the limit of a group, each by its seed: the first line of the
report names who grew. In half of them that is no recorded process that lives: another process of
the group, or processes that wrote to a tmpfs and ended."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from checks import Finding, verdict
from ends import small_group
from recording import Recording
from trial import PATIENCE_S, Output, stopped

PROGRAM = Path(__file__).parent / "programs" / "staged_kill.py"
COUNT = 50
LIMIT_BYTES = 256 << 20


def kills(memtrace: Path, kept: Path, names: list[str]) -> Iterator[tuple[str, Finding]]:
    """Plays each seed, or those that are named."""
    for seed in range(COUNT):
        name = f"kill-{seed:02}"
        if names and name not in names:
            continue
        place = kept / name
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            yield name, play(seed, place, memtrace)
        except (OSError, subprocess.SubprocessError) as error:
            yield name, Finding("the kill", "happens", f"{type(error).__name__}: {error}", "MISSED")


def play(seed: int, place: Path, memtrace: Path) -> Finding:
    """Plays one, and holds the report against what is right."""
    path, log = place / "recording", place / "output"
    files = Path("/dev/shm") / f"memtrace-{place.name}"
    files.mkdir(exist_ok=True)
    own = [sys.executable, str(PROGRAM), str(seed), str(files)]
    other = [sys.executable, str(PROGRAM), str(seed), "beside"]
    with small_group(place.name, LIMIT_BYTES) as group, open(log, "wb") as output:
        enter = ["/bin/sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        record = [str(memtrace), "record", "-o", str(path), "--", *enter, *own]
        told: Output = {"stdout": output, "stderr": output}
        try:
            environment = {**os.environ, "LAB_GROUP": str(group)}
            with stopped(subprocess.Popen(record, env=environment, **told)) as run:
                beside = subprocess.Popen([*enter, *other]) if seed % 10 in (5, 6, 7) else None
                with suppress(subprocess.TimeoutExpired):
                    run.wait(PATIENCE_S)
            if beside:
                beside.kill()
                beside.wait()
        finally:
            shutil.rmtree(files)
    truth = json.loads(next(line for line in log.read_text().splitlines() if '"kind"' in line))
    first = Recording(memtrace, path).answer("what_happened")
    if "culprit" in truth:
        asked = rf"because .*\b{truth['culprit']}\b"
        if truth["kind"] == "copies":
            asked = r"because .*(\d . fork|\d+ processes)"
    elif "writers_of" in truth:
        asked = r"because .*shared memory"
    else:
        asked = r"because .*not recorded"
    return Finding(truth["kind"], asked, first, verdict(bool(re.search(asked, first))))
