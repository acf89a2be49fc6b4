"""The report of a run of many hosts, its recordings read by many workers.

What each recording adds to the answer is worked out where the work is distributed to, by
``memtrace report --reduce``; what they make together, here, by ``memtrace report --merge``. So the
answer is that of ``memtrace report ROOT``, to the byte. The program ``memtrace`` has to be on
every node that reads; this package need not be.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

__all__ = ["Report", "report"]

_RETRIES = 3
_ADDRESS = "://"
_UNREAD = "memtrace-host-unread"


class Report(dict[str, Any]):
    """What `memtrace report --format json` says of the run, as a dict."""

    text: str
    """The report as text."""
    json: str
    """The same figures, as they were written."""
    problems: dict[str, str]
    """The recordings that could not be read, and why. The report is that of the others."""


def report(
    root: str | os.PathLike[str] | Sequence[str],
    *,
    run: str | None = None,
    engine: Literal["local", "ray"] = "local",
    workers: int | None = None,
    program: str | None = None,
) -> Report:
    """The report of a run: of `run`, else of the newest one below the root.

    `root` is a directory with ``run=ID/host=NAME/rec=START`` below, or a list of recordings, paths
    and addresses (``s3://…``); an address of a root is read by one worker. ``engine="ray"`` has one
    task of Ray read each recording, on a node that has its files where not all nodes have, again
    where a worker is lost; connect to the cluster first (`ray.init`). ``engine="local"`` does it
    here, in so many `workers` at a time as there are CPUs. `program` is memtrace, else what
    MEMTRACE names, else the one on the PATH.
    """
    if engine not in _ENGINES:
        raise ValueError(f"engine is one of {', '.join(sorted(_ENGINES))}, not {engine!r}")
    program = program or os.environ.get("MEMTRACE") or "memtrace"
    roots = [os.fspath(root)] if isinstance(root, (str, os.PathLike)) else list(root)
    read, problems = _sorted_out(_ENGINES[engine](roots, run, program, workers))
    lines = b"".join(line for _, line in sorted(read.items()))
    if not any(_part_lines(lines)):
        said = "; ".join(problems.values()) or "there is no recording"
        raise FileNotFoundError(f"failed to read a recording of {', '.join(roots)}: {said}")
    place = ["--root", roots[0]] if isinstance(root, (str, os.PathLike)) else []
    merge = [program, "report", "--merge", "-", *place, "--format"]
    merged = {form: _told([*merge, form], lines).decode() for form in ("json", "text")}
    made = Report(json.loads(merged["json"]))
    made.json, made.text, made.problems = merged["json"], merged["text"], problems
    return made


_Answer = tuple[str, bytes, str]
"""Of a recording, or the address of a root: the lines that it adds, and why it could not be read,
else empty."""


def _read_here(
    roots: list[str], run: str | None, program: str, workers: int | None
) -> Iterable[_Answer]:
    recordings = _recordings(roots, run)
    with ThreadPoolExecutor(workers or os.cpu_count()) as threads:
        return list(threads.map(lambda recording: _tried(program, recording, run), recordings))


def _read_by_ray(
    roots: list[str], run: str | None, program: str, workers: int | None
) -> Iterable[_Answer]:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if workers is not None:
        raise ValueError('engine="ray" takes the CPUs that the cluster has; leave out workers')
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    at = NodeAffinitySchedulingStrategy
    list_on = ray.remote(num_cpus=0, max_retries=_RETRIES)(_recordings)
    reduce = ray.remote(num_cpus=1, max_retries=_RETRIES)(_tried)
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    lists = [
        list_on.options(scheduling_strategy=at(node, soft=False)).remote(roots, run)
        for node in nodes
    ]
    seen: dict[str, list[str]] = {}
    refused = []
    for node, asked in zip(nodes, lists):
        try:
            for recording in ray.get(asked):
                seen.setdefault(recording, []).append(node)
        except ray.exceptions.RayError as error:
            refused.append(str(error))
    if not seen and refused:
        return [(root, b"", refused[0]) for root in roots]
    load = dict.fromkeys(nodes, 0)

    def asked_for(recording: str) -> Any:
        having = seen[recording]
        if len(having) == len(nodes):
            return reduce.remote(program, recording, run)
        nearest = min(having, key=lambda node: load[node])
        load[nearest] += 1
        # Softly: where that node is lost, another may have it by then.
        return reduce.options(scheduling_strategy=at(nearest, soft=True)).remote(
            program, recording, run
        )

    asked_all = {recording: asked_for(recording) for recording in seen}

    def answer(recording: str, asked: Any) -> _Answer:
        try:
            told: _Answer = ray.get(asked)
            return told
        except ray.exceptions.RayError as error:
            return recording, b"", str(error).strip()

    return [answer(recording, asked) for recording, asked in asked_all.items()]


_ENGINES: dict[str, Callable[[list[str], str | None, str, int | None], Iterable[_Answer]]] = {
    "local": _read_here,
    "ray": _read_by_ray,
}


def _sorted_out(answers: Iterable[_Answer]) -> tuple[dict[str, bytes], dict[str, str]]:
    """The lines to merge, also those that say why a recording is not among them, and these."""
    lines, problems = {}, {}
    for recording, line, why in answers:
        lines[recording] = line
        if why:
            problems[recording] = why
            lines[recording] = line or _unread(recording, why)
        for told in map(json.loads, line.splitlines() if not why else []):
            if told["format"] == _UNREAD:
                place = [f"{key}={told[key]}" for key in ("run", "host", "rec") if told[key]]
                problems["/".join([recording.rstrip("/"), *place])] = told["why"]
    return lines, problems


def _unread(recording: str, why: str) -> bytes:
    """The line for a recording that memtrace did not come to look at, so that its host is told."""
    place = {key: _part_of(recording, key + "=") for key in ("run", "host", "rec")}
    if not all(place.values()):
        return b""
    return json.dumps({"format": _UNREAD, "version": 1, **place, "why": why}).encode() + b"\n"


def _part_lines(lines: bytes) -> Iterable[bytes]:
    return (line for line in lines.splitlines() if json.loads(line)["format"] != _UNREAD)


def _recordings(roots: Sequence[str], run: str | None) -> list[str]:
    """The recordings below each that this machine has, of the run that is meant; an address, and a
    recording, is itself."""
    found: list[str] = []
    for root in roots:
        if _ADDRESS in root or os.path.exists(os.path.join(root, "run.json")):
            found.append(root)
            continue
        # As in `host=NAME`, of which a run or a host may be named itself.
        levels = ["run=*", "host=*", "rec=*"]
        below = [
            path
            for depth in range(len(levels))
            for path in glob.glob(os.path.join(glob.escape(root), *levels[depth:]))
        ]
        runs = {path: _part_of(path, "run=") for path in below}
        # The newest recording is of the newest run.
        newest = max(below, key=lambda path: (_part_of(path, "rec="), runs[path]), default=None)
        wanted = run if run is not None or newest is None else runs[newest]
        found += [path for path in below if runs[path] == wanted]
    return sorted(found)


def _part_of(path: str, key: str) -> str:
    """The name behind a key in a path: ID of `run=ID`."""
    parts = os.path.abspath(path).split(os.sep)
    return next((part[len(key) :] for part in reversed(parts) if part.startswith(key)), "")


def _tried(program: str, recording: str, run: str | None) -> _Answer:
    """The line that says what a recording adds to its run's report, or why it can't be had."""
    command = [program, "report", "--reduce"]
    is_root = _ADDRESS in recording and not recording.rstrip("/").split("/")[-1].startswith("rec=")
    if run is not None and is_root:
        command += ["--run", run]
    try:
        made = _ran([*command, "--", recording])
    except OSError as error:
        return recording, b"", str(error)
    why = "" if made.returncode == 0 else made.stderr.decode(errors="replace").strip()
    return recording, made.stdout, why


def _told(command: Sequence[str], given: bytes = b"") -> bytes:
    """What a program writes; `RuntimeError` with its words where it fails."""
    made = _ran(command, given)
    if made.returncode != 0:
        raise RuntimeError(made.stderr.decode(errors="replace").strip())
    return made.stdout


def _ran(command: Sequence[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    # Without what readline sets behind Python's back, COLUMNS, by which the text is laid out.
    environment = dict(os.environ)
    return subprocess.run(command, input=given, capture_output=True, check=False, env=environment)
