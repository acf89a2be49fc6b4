"""The heavy libraries of docs/run.md, beside one that python/tests holds against the tables."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY, told

# In an interpreter of its own: Ray and Spark leave much behind.
ASKED = """
import json, pathlib, sys
from recipes import make_root, sums_of
library, golden, root = sys.argv[1], *map(pathlib.Path, sys.argv[2:])
sums = sums_of(library, root if root.exists() else make_root(golden, root))
print(json.dumps(sums))
"""


def sums_of(library: str, root: Path) -> dict[str, int]:
    golden = os.environ["MEMTRACE_GOLDEN_DIR"]
    environment = {
        "PYTHONPATH": str(REPOSITORY / "python/tests"),
        "PYSPARK_PYTHON": sys.executable,
        # Spark's times are local ones.
        "TZ": "UTC",
    }
    said = told(sys.executable, "-c", ASKED, library, golden, root, **environment)
    sums: dict[str, int] = json.loads(said.splitlines()[-1])
    return sums


@pytest.mark.parametrize("library", ["Ray Data", "Spark"])
def test_heavy_libraries_have_the_same_answer(library: str, tmp_path: Path) -> None:
    expected = sums_of("DuckDB", tmp_path / "root")
    assert len(expected) > 10
    assert sums_of(library, tmp_path / "root") == expected
