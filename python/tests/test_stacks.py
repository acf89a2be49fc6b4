"""`stacks()` of processes that live, that have ended, and at a moment."""

from __future__ import annotations

from typing import Any

from memtrace._recording import stacks
from memtrace._recording.table import Table

SECOND = 1_000_000_000


def sites(*resident: tuple[int, int, int]) -> Table:
    """Rows of `growth_site`: a time in seconds, a process, and what is resident of its stack."""
    names = ("boot_ns", "upid", "stack_id", *stacks.AMOUNTS)
    place = stacks.AMOUNTS.index("resident_bytes")

    def row(time: int, upid: int, amount: int) -> tuple[int, ...]:
        amounts = [0] * len(stacks.AMOUNTS)
        amounts[place] = amount
        return (time * SECOND, upid, 1, *amounts)

    columns = zip(*(row(*one) for one in resident))
    return Table.of("growth_site", {name: ("int64", list(of)) for name, of in zip(names, columns)})


def resident(ends: dict[int, int], until: int | None = None) -> dict[Any, Any]:
    grown = sites((1, 1, 900), (1, 2, 70), (20, 1, 10), (39, 2, 60), (40, 1, 5), (40, 2, 0))
    ends = {upid: end * SECOND for upid, end in ends.items()}
    table = stacks.table(grown, None, {}, ends, None if until is None else until * SECOND)
    return dict(zip(table.column("upid"), table.column("resident_bytes")))


def test_a_process_that_lives_has_its_figures_of_the_end() -> None:
    assert resident({}) == {1: 5, 2: 0}


def test_a_process_that_has_ended_has_those_of_its_last_moments() -> None:
    assert resident({2: 43}) == {1: 5, 2: 60}


def test_at_a_moment_who_lives_has_its_figures_of_then() -> None:
    assert resident({2: 43}, until=30) == {1: 10, 2: 70}
    assert resident({2: 43}, until=50) == {1: 5}
