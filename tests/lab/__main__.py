"""`cargo xtask lab` runs this: trials of memtrace beside an independent tracer. Each finding is a
line of JSON; what a person reads is made of them by the task."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from checks import Finding
from ends import ends
from leaks import leaks
from live import LIVE
from ooms import kills
from soak import soak
from staged import staged
from trees import large, loops, trees
from trial import Trial, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memtrace", type=Path, required=True)
    parser.add_argument("--workload", type=Path, required=True)
    parser.add_argument(
        "--quick", action="store_true", help="processes and peaks only, of trees only"
    )
    parser.add_argument("--staged", action="store_true", help="what forty trees held")
    parser.add_argument("--ends", action="store_true", help="how processes of frameworks end")
    parser.add_argument("--kills", action="store_true", help="fifty kills by the OOM killer")
    parser.add_argument("--leaks", action="store_true", help="whether the line that leaks is named")
    parser.add_argument(
        "--soak", type=seconds, metavar="TIME", help="a month of recordings within this time: 2h"
    )
    parser.add_argument("--live", choices=sorted(LIVE))
    parser.add_argument("--python", type=Path, help="the one that has ray or vllm")
    parser.add_argument("--keep", type=Path, help="where recordings stay")
    parser.add_argument("names", nargs="*", help="trials; all where none is given")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memtrace-lab-") as directory:
        kept, memtrace = ((args.keep or Path(directory)).absolute(), args.memtrace.absolute())
        if args.soak:
            for name, finding in soak(args.soak, memtrace, kept):
                say(name, finding)
        elif args.leaks:
            for name, finding in leaks(args.python, memtrace, kept, args.names):
                say(name, finding)
        elif args.ends:
            for name, finding in ends(args.python, memtrace, kept, args.names):
                say(name, finding)
        elif args.kills:
            for name, finding in kills(memtrace, kept, args.names):
                say(name, finding)
        else:
            try_each(args, Path(directory))


def seconds(text: str) -> float:
    """A time as memtrace takes it: 2h, 110m."""
    return float(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def try_each(args: argparse.Namespace, directory: Path) -> None:
    for trial in chosen(args, directory):
        if args.names and trial.name not in args.names:
            continue
        print(f"{trial.name} …", file=sys.stderr, flush=True)
        try:
            for finding in run(trial, args.memtrace, args.keep or directory, args.quick):
                say(trial.name, finding)
        except Exception as error:  # A trial that fails is a finding, and the others go on.
            traceback.print_exc()
            say(
                trial.name,
                Finding("the trial", "runs", f"{type(error).__name__}: {error}", "MISSED"),
            )


def chosen(args: argparse.Namespace, directory: Path) -> Iterator[Trial]:
    if args.live:
        yield from LIVE[args.live](args.python, directory)
    elif args.staged:
        yield from staged()
    else:
        yield from trees(args.workload)
        if not args.quick:
            yield from large(args.workload)
            yield from loops(args.workload)


def say(trial: str, finding: Finding) -> None:
    print(json.dumps({"trial": trial, **finding._asdict()}), flush=True)


main()
