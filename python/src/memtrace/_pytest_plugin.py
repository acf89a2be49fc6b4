"""The plugin of pytest: limits on what a test takes and keeps, and a list of what each took."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import pytest

from . import _children, _sizes
from ._measure import Measure, Section

_MARK = "memtrace"
_SUMMARY = (
    'memtrace(peak="200 MiB", leak="1 MiB"): fails a test whose memory, children included, rises '
    "by more than `peak` while it runs, or after which more than `leak` stays."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("memtrace")
    group.addoption(
        "--memtrace",
        action="store_true",
        help="show the peak memory of each test, and the tests after which most stayed",
    )
    group.addoption(
        "--memtrace-top",
        type=int,
        default=20,
        metavar="N",
        help="show so many tests in each list of --memtrace; 0 shows all (default: 20)",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _SUMMARY)
    config.pluginmanager.register(_Plugin(config), "memtrace-tests")


class _Limits(NamedTuple):
    peak_bytes: int | None = None
    leak_bytes: int | None = None


def _limits(item: pytest.Item) -> _Limits | None:
    """The limits of a test: those of the nearest mark that has them. ValueError for odd ones."""
    given: dict[str, int] = {}
    marks = list(item.iter_markers(_MARK))
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
        if rise is not None and rise > limits.peak_bytes:
            error = measure.error_bytes
            bound = f" (± {_sizes.shown(error)})" if error else ""
            children = ""
            if measure.children_bytes:
                children = f" Its children held up to {_sizes.shown(measure.children_bytes)}."
            exceeded.append(
                f"memory rose by {_sizes.shown(rise)}{bound} above what was held when the test "
                f"began; the limit is {limit}.{children}"
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


class _Plugin:
    """Measures in the process that runs tests; shows in the one that reports, of which xdist
    makes two."""

    def __init__(self, config: pytest.Config) -> None:
        self._measures_all = bool(config.getoption("memtrace"))
        self._top: int = config.getoption("memtrace_top")
        self._sampler: _children.Sampler | None = None
        self._told: dict[str, dict[str, Any]] = {}
        self._shown: dict[str, Measure] = {}
        self._unjudged: dict[str, list[str]] = {}
        self._why_no_children: str | None = None

    # Before fixtures, which may replace what a sampler is started with.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        try:
            limits = _limits(item)
        except ValueError as error:
            text = f"@pytest.mark.memtrace: {error}"
            raise pytest.fail.Exception(text, pytrace=False) from None
        if limits is not None or self._measures_all:
            self._started()

    def _started(self) -> _children.Sampler:
        if self._sampler is None:
            self._sampler = _children.Sampler()
        return self._sampler

    # Within the wrappers of other plugins, so that what they take is not the test's.
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        limits = _limits(item)
        if limits is None and not self._measures_all:
            yield
            return
        sampler = self._started()
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
        if exceeded:
            text = "\n".join(f"memtrace: {sentence}" for sentence in exceeded)
            outcome.force_exception(pytest.fail.Exception(text, pytrace=False))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        outcome = yield
        told = self._told.pop(item.nodeid, None)
        if told is not None:
            report = outcome.get_result()
            report.memtrace = told
            report.user_properties.extend(
                (f"memtrace_{name}", told[name])
                for name in ("rise_bytes", "stayed_bytes")
                if told[name] is not None
            )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = getattr(report, "memtrace", None)
        if told is None:
            return
        told = dict(told)
        unjudged = told.pop("unjudged")
        self._why_no_children = told.pop("why_no_children") or self._why_no_children
        self._shown[report.nodeid] = Measure(**told)
        if unjudged:
            self._unjudged[report.nodeid] = unjudged

    def pytest_unconfigure(self) -> None:
        if self._sampler is not None:
            self._sampler.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        write = terminalreporter.write_line
        if self._unjudged:
            terminalreporter.write_sep("=", "memtrace: limits that could not be judged")
            for test, sentences in self._unjudged.items():
                for sentence in sentences:
                    write(f"{test}: {sentence}")
        if self._measures_all and self._shown:
            terminalreporter.write_sep("=", f"memtrace: memory of {len(self._shown)} tests")
            for line in _table(self._shown, self._top):
                write(line)
        if self._shown and self._why_no_children:
            write(f"memtrace: children are not counted: {self._why_no_children}")


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
