"""A recording as any reader of Parquet sees it, and the reports that memtrace makes of it."""

from __future__ import annotations

import json
import subprocess
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.dataset

Row = dict[str, Any]


class Held(NamedTuple):
    """What the report says was held, and its bounds."""

    least_bytes: int
    bytes: int
    most_bytes: int


class Recording:
    """One recording, read table by table."""

    def __init__(self, memtrace: Path, path: Path) -> None:
        self.memtrace, self.path = memtrace, path

    def rows(self, table: str, *columns: str) -> list[Row]:
        """The rows of a table."""
        files = sorted(str(file) for file in (self.path / table).glob("*.parquet"))
        if not files:
            return []
        data = pyarrow.dataset.dataset(files, format="parquet")
        return list(data.to_table(columns=list(columns)).to_pylist())

    @cached_property
    def span(self) -> tuple[int, int]:
        """Its begin and its end."""
        said = self.report["recording"]
        return said["start"]["boot_ns"], said["end"]["boot_ns"]

    @cached_property
    def processes(self) -> list[Row]:
        """The rows of `process`."""
        return self.rows(
            "process",
            *("upid", "tgid", "comm", "cmdline", "role", "start_boot_ns", "exit_boot_ns"),
            *("exit_code", "exit_signal", "peak_rss_bytes", "peak_error_bytes"),
        )

    @cached_property
    def report(self) -> Row:
        """The report as JSON."""
        return dict(json.loads(self.say("report", "--format", "json")))

    @cached_property
    def text(self) -> str:
        """The report as a person reads it."""
        return self.say("report")

    def answer(self, about: str = "") -> str:
        """The first lines of the report, or the sentence about something."""
        lines = [line for line in self.report["answer"] if about in ("", line["about"])]
        return "\n".join(f"{line['about']}: {line['text']}" for line in lines)

    def held_at(self, boot_ns: int) -> Held:
        """What the report says was held at an instant."""
        offset = max(boot_ns - self.span[0], 0) / 1e9
        at = json.loads(self.say("report", "--format", "json", "--at", f"+{offset:.6f}s"))["at"]
        return Held(at["held_at_least_bytes"], at["held_bytes"], at["held_at_most_bytes"])

    def say(self, command: str, *words: str) -> str:
        """What a command of memtrace says of the recording."""
        line = [str(self.memtrace), command, str(self.path), *words]
        return subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout

    @cached_property
    def rss_of_tree(self) -> list[tuple[int, int]]:
        """The sum of RSS over all processes, from each time on."""
        ends = {row["upid"]: row["exit_boot_ns"] for row in self.processes}
        moves: list[tuple[int, int, int]] = [
            (row["boot_ns"], row["upid"], row["rss_bytes"])
            for row in self.rows("mem", "boot_ns", "upid", "rss_bytes")
            if row["rss_bytes"] is not None
        ]
        moves = [move for move in moves if not ends.get(move[1]) or move[0] < ends[move[1]]]
        moves += [(end, upid, 0) for upid, end in ends.items() if end is not None]
        moves.sort()
        now: dict[int, int] = {}
        total, curve = 0, []
        for time, upid, rss in moves:
            total += rss - now.get(upid, 0)
            now[upid] = rss
            curve.append((time, total))
        return curve


class Comparison:
    """What `memtrace diff` says of two recordings."""

    # Its status where something rose by more than was allowed.
    ABOVE = 3

    def __init__(self, memtrace: Path, before: Path, after: Path, allowed: str = "5%") -> None:
        line = [str(memtrace), "diff", str(before), str(after), "--fail-above", allowed]
        self.status, self.text = self.said(line)
        _, told = self.said([*line, "--format", "json"])
        self.told: Row = json.loads(told)

    def said(self, line: list[str]) -> tuple[int, str]:
        ended = subprocess.run(line, stdout=subprocess.PIPE, text=True)
        if ended.returncode not in (0, self.ABOVE):
            ended.check_returncode()
        return ended.returncode, ended.stdout
