"""`python3 -m memtrace.ray`, which is also `memtrace ray`."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from . import STOP_SECONDS, _start, status, stop

_EPILOG = """examples:
  memtrace ray start --root s3://bucket/memory -- --rotate 30s
  memtrace ray status
  memtrace ray stop
  ray job submit -- python3 -m memtrace.ray run --root s3://bucket/memory -- python3 train.py
"""


def main(words: list[str]) -> int:
    """Does what the words say; the status for the shell."""
    at = words.index("--") if "--" in words else len(words)
    own, others = words[:at], words[at + 1 :]
    args = _parser().parse_args(own)
    if args.verb in ("status", "stop") and others:
        _parser().error(f"{args.verb} takes no arguments after --")
    if args.verb == "run" and not others:
        _parser().error("run takes a command after --")
    try:
        status_code: int = args.do(args, others)
    except (RuntimeError, ConnectionError) as error:
        print(f"memtrace: {error}", file=sys.stderr)
        return 1
    return status_code


def _start_nodes(args: argparse.Namespace, words: list[str]) -> int:
    begun = _start(args.root, args.run, args.address, args.program, words)
    print(f"run {begun.run}, below {begun.root}")
    return _print(begun.nodes, good="recording")


def _run(args: argparse.Namespace, command: list[str]) -> int:
    _start_nodes(args, [])
    try:
        return subprocess.run(command, check=False).returncode
    finally:
        _print(stop(timeout=args.timeout), good="ended")


def _stop(args: argparse.Namespace, _: list[str]) -> int:
    return _print(stop(address=args.address, timeout=args.timeout), good="ended")


def _status(args: argparse.Namespace, _: list[str]) -> int:
    told = status(address=args.address)
    if args.json:
        print(json.dumps(told))
    elif told is None:
        print("nothing records this cluster")
    else:
        print(f"run {told['run']}, below {told['root']}")
        _print(told["nodes"], good="recording")
    return 0 if told else 1


def _print(nodes: list[dict[str, Any]], good: str) -> int:
    """A line a node, and what its recorder says; 1 where one is not as it should be."""
    for node in nodes:
        pid = f", process {node['pid']}" if "pid" in node else ""
        print(f"{node['host']}: {node['state']}{pid}")
        for line in node.get("says", ()):
            print(f"    {line}")
    return 0 if all(node["state"] in (good, "dead") for node in nodes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="memtrace ray",
        description="Record every node of a Ray cluster, under one root (docs/hosts.md).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)

    def verb(
        name: str, do: Any, told: str, *, starts: bool, stops: bool
    ) -> argparse.ArgumentParser:
        own = verbs.add_parser(name, help=told, description=told)
        own.set_defaults(do=do)
        own.add_argument("--address", help="of the cluster; without it, the one of this machine")
        if starts:
            own.add_argument("--root", required=True, help="a directory or an address, s3://…")
            own.add_argument("--run", help="its name under the root; without it, Ray's session")
            own.add_argument("--program", default="memtrace", help="memtrace on the nodes")
        if stops:
            own.add_argument(
                "--timeout", type=float, default=STOP_SECONDS, help="seconds to wait for each node"
            )
        return own

    start = "start recorders; options of `memtrace record` may follow --"
    verb("start", _start_nodes, start, starts=True, stops=False)
    verb("stop", _stop, "end them, and wait for the upload", starts=False, stops=True)
    asked = verb("status", _status, "show the state of each node", starts=False, stops=False)
    asked.add_argument("--json", action="store_true", help="as JSON")
    run = "record while a command runs, which follows --"
    verb("run", _run, run, starts=True, stops=True)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
