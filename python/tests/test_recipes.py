"""What docs/run.md says about reading a root with what people have. Ray Data and Spark, which are
heavy, are in tests/hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recipes import HOSTS, make_root, snippets, sums_of

import memtrace

for library in ("pyarrow", "duckdb", "pandas", "polars"):
    pytest.importorskip(library)


@pytest.fixture(scope="session")
def root(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_root(golden, tmp_path_factory.mktemp("root"))


def test_the_page_has_all_libraries() -> None:
    assert list(snippets()) == ["DuckDB", "Polars", "pandas and pyarrow", "Ray Data", "Spark"]


def test_three_libraries_have_one_answer(root: Path) -> None:
    sums = sums_of("DuckDB", root)
    assert len(sums) > 10
    assert sums == sums_of("Polars", root)
    assert sums == sums_of("pandas and pyarrow", root)


def test_the_sum_is_that_of_each_process_at_that_instant(root: Path, golden: Path) -> None:
    sums = sums_of("DuckDB", root)
    # In the middle all three hosts run.
    second = sorted(sums)[len(sums) // 2]

    def held(recording: Any) -> int:
        mem = recording.mem.to_pandas().query("source != 'self'").sort_values("boot_ns")
        until = mem[mem.ts.astype("int64") < (second + 1) * 1_000_000_000]
        return int(until.groupby("upid").rss_anon_bytes.last().sum())

    by_host = [held(memtrace.load(golden / name)) for name in HOSTS.values()]
    assert all(by_host)
    assert sum(by_host) == sums[second]
