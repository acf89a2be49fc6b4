"""Who the processes are: what stands beside their memory in every table that is made here."""

from __future__ import annotations

import os
from typing import NamedTuple

from .table import Table


class Process(NamedTuple):
    """What a process is, as the table `process` has it."""

    upid: int
    tgid: int | None
    name: str
    """Its role with its framework and its rank, else its command line, cut."""
    framework: str | None
    role: str | None
    rank: str | None
    comm: str | None
    cmdline: str | None


# Of one that has memory and no row of its own nothing is known.
def unknown(upid: int) -> Process:
    return Process(upid, None, "?", None, None, None, None, None)


COLUMNS = (
    ("upid", "int64"),
    ("tgid", "int32"),
    ("name", "string"),
    ("framework", "string"),
    ("role", "string"),
    ("rank", "string"),
)


def of(process: Table) -> dict[int, Process]:
    """The processes by upid."""
    names = ("upid", "tgid", "framework", "role", "rank", "comm", "cmdline")
    return {
        upid: Process(upid, tgid, _name(*who), *who)
        for upid, tgid, *who in zip(*map(process.column, names))
    }


def _name(
    framework: str | None,
    role: str | None,
    rank: str | None,
    comm: str | None,
    cmdline: str | None,
) -> str:
    # The command that was recorded is best known by its command line.
    if role is not None and role != "main":
        return " ".join(word for word in (framework, role, rank) if word)
    return _short(cmdline or comm or "?")


def _short(command: str) -> str:
    program, _, rest = " ".join(command.split()).partition(" ")
    text = f"{os.path.basename(program) or program} {rest}".strip()
    return text if len(text) <= 48 else f"{text[:47]}…"
