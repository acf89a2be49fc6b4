"""Tests of pytest: limits on what each takes and keeps, and a list of what each took.

The hooks are in `memtrace_pytest`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import pytest

from . import _children, _sizes
from ._measure import Measure, Section


class _Limits(NamedTuple):
    peak_bytes: int | None = None
    leak_bytes: int | None = None


def _limits(marks: Sequence[pytest.Mark]) -> _Limits | None:
    """The limits of a test: those of its nearest mark, the first, that has them. ValueError for odd
    ones."""
    given: dict[str, int] = {}
    for mark in marks:
        if mark.args:
            raise ValueError(f'limits have names: @pytest.mark.memtrace(peak="{mark.args[0]}")')
        for name, size in mark.kwargs.items():
            field = f"{name}_bytes"
            if field not in _Limits._fields:
                raise ValueError(f"there is no limit {name!r}; there are: peak, leak")
            try:
                given.setdefault(field, _sizes.parsed(size))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    if marks and not given:
        raise ValueError('a limit is missing: @pytest.mark.memtrace(peak="200 MiB")')
    return _Limits(**given) if given else None


def _verdict(limits: _Limits, measure: Measure) -> tuple[list[str], list[str]]:
    """What exceeds its limit, and which limit could not be judged."""
    exceeded, unjudged = [], []
    if limits.peak_bytes is not None:
        limit = _sizes.shown(limits.peak_bytes)
        rise, at_most = measure.rise_bytes, measure.rise_at_most_bytes
        at_least = measure.rise_at_least_bytes if rise is None else rise
        if at_least is not None and at_least > limits.peak_bytes:
            error = measure.error_bytes
            bound = f" (± {_sizes.shown(error)})" if error else ""
            children = ""
            if measure.children_bytes:
                children = f" Its children held up to {_sizes.shown(measure.children_bytes)}."
            by = _sizes.shown(rise) if rise is not None else f"at least {_sizes.shown(at_least)}"
            exceeded.append(
                f"memory rose by {by}{bound} above what was held when the test began; "
                f"the limit is {limit}.{children}"
            )
        elif rise is None and (at_most is None or at_most > limits.peak_bytes):
            known = "is unknown" if at_most is None else f"is {_sizes.shown(at_most)} at most"
            unjudged.append(
                f"the rise of memory {known}, for the kernel's mark (VmHWM) could not be reset "
                f"here; whether it exceeded {limit} is not known"
            )
    if limits.leak_bytes is not None:
        limit, stayed = _sizes.shown(limits.leak_bytes), measure.stayed_bytes
        if stayed is None:
            unjudged.append(f"what stayed is unknown; whether it exceeded {limit} is not known")
        elif stayed > limits.leak_bytes:
            exceeded.append(
                f"{_sizes.shown(stayed)} stayed after the test and a garbage collection; the "
                f"limit is {limit}."
            )
    return exceeded, unjudged


class Tests:
    """What was measured, in the process that runs tests or in the one that reports."""

    def __init__(self) -> None:
        self._sampler: _children.Sampler | None = None
        self._told: dict[str, dict[str, Any]] = {}
        self._shown: dict[str, Measure] = {}
        self._unjudged: dict[str, list[str]] = {}
        self._why_no_children: str | None = None

    def prepare(self, marks: Sequence[pytest.Mark]) -> _children.Sampler:
        """Refuses odd limits, and starts what samples children."""
        try:
            _limits(marks)
        except ValueError as error:
            text = f"@pytest.mark.memtrace: {error}"
            raise pytest.fail.Exception(text, pytrace=False) from None
        if self._sampler is None:
            self._sampler = _children.Sampler()
        return self._sampler

    def measured(
        self, item: pytest.Item, marks: Sequence[pytest.Mark]
    ) -> Generator[None, Any, None]:
        """A wrapper of the test's call."""
        sampler, limits = self.prepare(marks), _limits(marks)
        section = Section(item.nodeid, sampler, is_exact=limits is not None)
        with section:
            outcome = yield
        measure = section.measure()
        exceeded: list[str] = []
        unjudged: list[str] = []
        # The traceback of a failed test keeps what its frames had.
        if outcome.excinfo is None:
            exceeded, unjudged = _verdict(limits or _Limits(), measure)
        self._told[item.nodeid] = {
            **measure._asdict(),
            "unjudged": unjudged,
            "why_no_children": sampler.reason,
        }
        # A JUnit file has those of the report of the teardown.
        figures = {
            "memtrace_rise_bytes": measure.rise_bytes,
            "memtrace_stayed_bytes": measure.stayed_bytes,
        }
        # A test that runs again has the last figures.
        item.user_properties[:] = [
            *(known for known in item.user_properties if known[0] not in figures),
            *(figure for figure in figures.items() if figure[1] is not None),
        ]
        if exceeded:
            text = "\n".join(f"memtrace: {sentence}" for sentence in exceeded)
            _force(outcome, pytest.fail.Exception(text, pytrace=False))

    def attach(self, test: str, report: pytest.TestReport) -> None:
        """Gives the report of a call what was measured in it."""
        told = self._told.pop(test, None)
        if told is not None:
            vars(report)["memtrace"] = told

    def keep(self, test: str, told: dict[str, Any]) -> None:
        """Keeps what a report has, to be shown."""
        told = dict(told)
        unjudged = told.pop("unjudged")
        self._why_no_children = told.pop("why_no_children") or self._why_no_children
        self._shown[test] = Measure(**told)
        if unjudged:
            self._unjudged[test] = unjudged

    def close(self) -> None:
        """Lets the sampler end."""
        if self._sampler is not None:
            self._sampler.close()

    def show(self, terminal: pytest.TerminalReporter, top: int | None) -> None:
        """Writes what was not judged, and the lists, unless `top` is None."""
        write = terminal.write_line
        if self._unjudged:
            terminal.write_sep("=", "memtrace: limits that could not be judged")
            for test, sentences in self._unjudged.items():
                for sentence in sentences:
                    write(f"{test}: {sentence}")
        if top is not None and self._shown:
            count = len(self._shown)
            tests = "1 test" if count == 1 else f"{count} tests"
            terminal.write_sep("=", f"memtrace: memory of {tests}")
            for line in _table(self._shown, top):
                write(line)
        if self._shown and self._why_no_children:
            write(f"memtrace: children are not counted: {self._why_no_children}")


def _force(outcome: Any, error: BaseException) -> None:
    if hasattr(outcome, "force_exception"):
        outcome.force_exception(error)
    else:
        # pluggy before 1.1, which pytest 7 is content with.
        outcome._excinfo = type(error), error, None


_COLUMNS = ("rose by", "peak RSS", "stayed", "children")


def _table(measures: dict[str, Measure], top: int) -> list[str]:
    """The lists: who rose most, and after whom most stayed."""
    count = top if top > 0 else len(measures)
    by_rise = sorted(measures.items(), key=lambda one: -_rise(one[1]))
    lines = [_row(_COLUMNS, "test"), *(_row(_cells(one), name) for name, one in by_rise[:count])]
    if len(by_rise) > count:
        lines.append(f"{len(by_rise) - count} more tests: --memtrace-top=0 shows all")
    grown = [one for one in by_rise if (one[1].stayed_bytes or 0) > (one[1].error_bytes or 0)]
    grown.sort(key=lambda one: -(one[1].stayed_bytes or 0))
    if grown:
        lines += ["", "Most stayed after:"]
        lines += [f"{_sizes.shown(one.stayed_bytes):>12}  {name}" for name, one in grown[:count]]
    errors = [one.error_bytes for one in measures.values() if one.error_bytes]
    if errors:
        lines += ["", f"Figures of the kernel can be off by {_sizes.shown(max(errors))}."]
    return lines


def _rise(measure: Measure) -> int:
    rise = measure.rise_bytes
    return (measure.rise_at_most_bytes or 0) if rise is None else rise


def _cells(measure: Measure) -> tuple[str, ...]:
    rise = _sizes.shown(measure.rise_bytes)
    if measure.rise_bytes is None and measure.rise_at_most_bytes is not None:
        rise = f"≤ {_sizes.shown(measure.rise_at_most_bytes)}"
    others = (measure.own_peak_bytes, measure.stayed_bytes, measure.children_bytes)
    return rise, *map(_sizes.shown, others)


def _row(cells: tuple[str, ...], test: str) -> str:
    return "".join(f"{cell:>12}" for cell in cells) + f"  {test}"
