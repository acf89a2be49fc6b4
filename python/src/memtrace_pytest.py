"""The plugin of pytest: its options, its mark, and what it hooks into.

pytest loads it wherever the package is installed. So it stands beside the package, which is
imported when the first test asks to be measured.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from memtrace._tests import Tests

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


class _Plugin:
    """Measures in the process that runs tests; shows in the one that reports, of which xdist
    makes two."""

    def __init__(self, config: pytest.Config) -> None:
        self._measures_all = bool(config.getoption("memtrace"))
        self._top: int = config.getoption("memtrace_top")
        self._tests: Tests | None = None

    def _begun(self) -> Tests:
        if self._tests is None:
            from memtrace._tests import Tests

            self._tests = Tests()
        return self._tests

    def _is_measured(self, item: pytest.Item) -> bool:
        return self._measures_all or item.get_closest_marker(_MARK) is not None

    # Before fixtures, which may replace what is needed to begin.
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if self._is_measured(item):
            self._begun().prepare(list(item.iter_markers(_MARK)))

    # Within the wrappers of other plugins, so that what they take is not the test's.
    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, None]:
        if self._is_measured(item):
            yield from self._begun().measured(item, list(item.iter_markers(_MARK)))
        else:
            yield

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, Any, None]:
        outcome = yield
        if self._tests is not None:
            self._tests.attach(item.nodeid, outcome.get_result())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if hasattr(report, "memtrace"):
            self._begun().keep(report.nodeid, report.memtrace)

    def pytest_unconfigure(self) -> None:
        if self._tests is not None:
            self._tests.close()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._tests is not None:
            self._tests.show(terminalreporter, self._top if self._measures_all else None)
