"""Leaks that are planted, and patterns of leak reports that are public: whether the first lines of
the report name the line that is marked LEAK in the program, and say what malloc only keeps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from checks import Finding, verdict
from recording import Recording
from trial import PATIENCE_S, Output, stopped

PROGRAMS = Path(__file__).parent / "programs" / "leaks"
REPORTS = "reports"
# How a sentence says that most of what a line holds is not in use.
KEPT = ", most of that kept free by malloc"
# What is said of a case that needs what is not here.
NOT_RUN = "not run"

FRAMED = "-fno-omit-frame-pointer"


class Case(NamedTuple):
    """One program, and what it runs with."""

    source: str
    # The version of Python, or `given`: that of --python, which has the package it needs.
    python: str = "3.11"
    arguments: tuple[str, ...] = ()
    # How C and C++ are built.
    flags: str = ""
    is_stripped: bool = False
    # A C library that a program in Python is called with.
    library: str = ""
    preload: str = ""
    # For how long it is recorded, where it does not end before.
    recorded: str = ""
    is_kept: bool = False


def reports() -> dict[str, Case]:
    """The patterns of leak reports. One of them needs torch."""
    paths = sorted((PROGRAMS / REPORTS).glob("*.*"))
    python = {"transformers_6999": "given"}
    return {
        path.stem: Case(f"{REPORTS}/{path.name}", python.get(path.stem, Case("").python))
        for path in paths
    }


# What a step frees again, as a part of what it keeps: little, or as much. Of memory that is handed
# out again memtrace knows who had it first (docs/stacks.md): these are not counted.
LITTLE, AS_MUCH = ("0.1",), ("1",)

CASES: dict[str, dict[str, Case]] = {
    "planted": {
        "list-3.9": Case("list.py", "3.9", LITTLE),
        "cache-3.10": Case("cache.py", "3.10"),
        "tasks-3.11": Case("tasks.py", "3.11"),
        "memo-3.12": Case("memo.py", "3.12", LITTLE),
        "closure-3.13": Case("closure.py", "3.13", LITTLE),
        "list-3.14": Case("list.py", "3.14", LITTLE),
        "numpy-view": Case("view.py", "given", LITTLE),
        "torch-losses": Case("losses.py", "given"),
        "torch-activations": Case("activations.py", "given"),
        "workers": Case("workers.py"),
        "mmap": Case("pages.py"),
        "shared-memory": Case("segments.py"),
        "extension": Case("extension.py", library="keep.c"),
        "c-no-frame-pointers": Case("keep.c", flags="-DMAIN -fomit-frame-pointer"),
        "c-only-frame-pointers": Case(
            "mapped.c", flags=f"{FRAMED} -fno-asynchronous-unwind-tables"
        ),
        "c-stripped": Case("keep.c", flags="-DMAIN", is_stripped=True),
        "c-jemalloc": Case("keep.c", flags="-DMAIN", preload="libjemalloc.so.2"),
        "c++-threads": Case("threads.cc", flags="-DCOUNT=2"),
        "c++-arenas": Case("threads.cc", flags=f"-DCOUNT=16 {FRAMED}"),
        "freed": Case("freed.c", recorded="8s", is_kept=True),
    },
    REPORTS: reports(),
    "handed-out-again": {
        "list-as-much": Case("list.py", arguments=AS_MUCH),
        "memo-as-much": Case("memo.py", arguments=AS_MUCH),
        "closure-as-much": Case("closure.py", arguments=AS_MUCH),
        "numpy-as-much": Case("view.py", "given", AS_MUCH),
    },
}
# So many of a kind are to be right.
LEAST = {"planted": 19, REPORTS: 7}


class Missing(Exception):
    """What a case needs, and this machine does not have."""


def leaks(
    python: Path | None, memtrace: Path, kept: Path, names: list[str]
) -> Iterator[tuple[str, Finding]]:
    """Plays each case, or those that are named, and counts those that are right."""
    for kind, cases in CASES.items():
        findings = []
        for name, case in cases.items():
            if names and name not in names:
                continue
            place = kept / name
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            finding = tried(case, place, python, memtrace)
            if kind not in LEAST and finding.verdict == "MISSED":
                finding = finding._replace(verdict="unknown")
            findings.append(finding)
            yield name, finding
        if not names:
            yield kind, counted(findings, LEAST.get(kind))


def counted(findings: list[Finding], least: int | None) -> Finding:
    """How many are right of those that ran."""
    right = sum(finding.verdict == "ok" for finding in findings)
    left_out = sum(finding.found.startswith(NOT_RUN) for finding in findings)
    found = f"{right} of {len(findings) - left_out}" + (f", {left_out} {NOT_RUN}" * (left_out > 0))
    if least is None:
        return Finding("lines right", "-", found, "unknown")
    met = verdict(right >= least) if right >= least or not left_out else "unknown"
    return Finding("lines right", f"{least} of {len(findings)}", found, met)


def tried(case: Case, place: Path, python: Path | None, memtrace: Path) -> Finding:
    """What came of a case."""
    try:
        return play(case, place, python, memtrace)
    except Missing as missing:
        return Finding("the line", marked(case), f"{NOT_RUN}: no {missing}", "unknown")
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("the case", "runs", f"{type(error).__name__}: {error}", "MISSED")


def marked(case: Case) -> str:
    """What the line that leaks is called in a report: a line of Python, or a function."""
    path = PROGRAMS / case.source
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if "LEAK" in line:
            if path.suffix == ".py":
                return f"{path.name}:{number}"
            return str(re.findall(r"(\w+)\(", line)[-1])
    raise ValueError(f"{path} has no line that is marked LEAK")


def play(case: Case, place: Path, python: Path | None, memtrace: Path) -> Finding:
    """Plays one case, and holds the report against what is right."""
    command = ready(case, place, python)
    path, log = place / "recording", place / "output"
    limit = ["--duration", case.recorded] if case.recorded else []
    line = [str(memtrace), "record", "--stacks", *limit, "-o", str(path), "--", *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with open(log, "wb") as output:
        told: Output = {"stdout": output, "stderr": output}
        with stopped(subprocess.Popen(line, env=environment, **told)) as run:
            run.wait(PATIENCE_S)
    if run.returncode:
        raise ChildProcessError(f"it ended with {run.returncode}: {log.read_text()[-200:]}")
    found = Recording(memtrace, path).answer("allocated") or "no line is named"
    named = re.search(r": \d+% (?:of these )?at (\S+?)\.?(?:\s|,|$)", found)
    is_line = named is not None and function(named[1], place) == marked(case)
    is_right = is_line and (KEPT in found) == case.is_kept
    asked = marked(case) + (KEPT if case.is_kept else "")
    return Finding("the line", asked, found, verdict(is_right))


def ready(case: Case, place: Path, python: Path | None) -> list[str]:
    """The command of a case, once what it needs is built."""
    source = PROGRAMS / case.source
    if source.suffix == ".py":
        command = [interpreter(case.python, python), str(source), *case.arguments]
        if case.library:
            library = place / "library.so"
            compiled(PROGRAMS / case.library, library, "-shared -fPIC")
            command.append(str(library))
        return command
    program = place / "program"
    compiled(source, program, case.flags)
    if case.is_stripped:
        shutil.copy(program, place / "symbols")
        subprocess.run(["strip", str(program)], check=True)
    preload = ["env", f"LD_PRELOAD={shared_library(case.preload)}"] if case.preload else []
    return [*preload, str(program)]


def compiled(source: Path, to: Path, flags: str) -> None:
    """Builds a program or a library."""
    compiler = "c++" if source.suffix == ".cc" else "cc"
    if not shutil.which(compiler):
        raise Missing(compiler)
    line = [compiler, "-O2", "-pthread", *flags.split(), "-o", str(to), str(source)]
    subprocess.run(line, check=True)


def interpreter(version: str, given: Path | None) -> str:
    """The program that runs Python of a version."""
    if version == "given":
        if given is None:
            raise Missing("--python")
        return str(given)
    of_pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    name = f"python{version}"
    places = [*of_pyenv.glob(f"{version}.*/bin/{name}"), shutil.which(name)]
    for path in [str(place) for place in places if place]:
        if subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return path
    raise Missing(name)


def shared_library(name: str) -> str:
    """Where the dynamic linker finds a library."""
    for line in subprocess.check_output(["/sbin/ldconfig", "-p"], text=True).splitlines():
        if line.split() and line.split()[0] == name:
            return line.split()[-1]
    raise Missing(name)


def function(named: str, place: Path) -> str:
    """The function that a report names, without its class. Of stripped code it names the place in
    the file, and the program with its symbols knows what lies there."""
    offset = re.fullmatch(r"program\+0x(\w+)", named)
    if not offset:
        return named.rsplit("::", 1)[-1]
    at, found = int(offset[1], 16), named
    symbols = subprocess.check_output(["nm", "-n", str(place / "symbols")], text=True)
    for line in symbols.splitlines():
        address, kind, name = line.rsplit(" ", 2)
        if kind in "tT" and int(address, 16) <= at:
            found = name
    return found
