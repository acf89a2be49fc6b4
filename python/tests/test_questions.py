"""Every snippet of "I want …" in docs/tables.md runs, and pandas, polars and DuckDB agree."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import memtrace

pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pandas")
pytest.importorskip("polars")

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def questions() -> dict[str, list[str]]:
    """The snippets by question."""
    chapter = re.search(r"^## I want …\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert chapter is not None
    parts = re.split(r"^### (.*)\n", chapter[1], flags=re.MULTILINE)[1:]
    blocks = re.compile(r"^```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    return {name: blocks.findall(text) for name, text in zip(parts[::2], parts[1::2])}


def rows_of_python(snippet: str, recording: Path) -> list[Any]:
    *before, last = snippet.strip().splitlines()
    scope: dict[str, Any] = {"rec": str(recording)}
    exec("\n".join(before), scope)
    frame = eval(last, scope)
    rows = frame.rows() if hasattr(frame, "rows") else frame.itertuples(index=False, name=None)
    return sorted(map(plain, rows), key=repr)


def rows_of_sql(snippet: str, recording: Path) -> list[Any]:
    with duckdb.connect() as connection:
        connection.execute(memtrace.duckdb_macros())
        rows = connection.sql(snippet.replace("REC", str(recording))).pl().rows()
    return sorted(map(plain, rows), key=repr)


def plain(row: Any) -> tuple[Any, ...]:
    """Values that compare across libraries."""

    def value(cell: Any) -> Any:
        if cell is None or cell != cell:
            return None
        if isinstance(cell, (int, float)):
            return float(cell)
        return cell if isinstance(cell, str) else cell.timestamp()

    return tuple(map(value, row))


@pytest.mark.parametrize("question", questions())
def test_a_question_has_one_answer_in_three_libraries(question: str, golden: Path) -> None:
    snippets = questions()[question]
    assert len(snippets) == 3
    for snippet in snippets:
        lines = [line for line in snippet.splitlines() if not line.startswith("import ")]
        assert 1 <= len(lines) <= 3
    has_calls = "cuda_memory" in snippets[0]
    recording = golden / ("gpu_by_calls" if has_calls else "phases_on_gpus")
    pandas, polars = (rows_of_python(snippet, recording) for snippet in snippets[:2])
    sql = rows_of_sql(snippets[2], recording)
    assert pandas
    assert pandas == polars
    assert pandas == sql


def test_ts_compares_with_a_timestamp_as_the_page_says(golden: Path) -> None:
    query = f"SELECT count(*) FROM '{golden}/phases_on_gpus/mem/*.parquet' WHERE "
    instant = "ts::TIMESTAMPTZ <= TIMESTAMPTZ '2026-03-01 13:02:00+01:00'"
    for zone in ("UTC", "America/New_York"):
        with duckdb.connect() as connection:
            connection.execute(f"SET TimeZone = '{zone}'")
            assert connection.sql(query + instant).fetchall() == [(6,)]
