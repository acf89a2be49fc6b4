"""What the tests share: the program, and recordings below a root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
DOCS = REPOSITORY / "docs"


@pytest.fixture(scope="session")
def program() -> Path:
    """memtrace, as `cargo xtask hosts` builds it."""
    return Path(os.environ["MEMTRACE_PROGRAM"])


@pytest.fixture
def path(program: Path, tmp_path: Path) -> Iterator[str]:
    """A PATH on which are memtrace, this Python, and the scripts of docs/slurm."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in (program, program.with_name("memtrace-remote"), *(DOCS / "slurm").iterdir()):
        (tools / tool.name).symlink_to(tool)
    (tools / "python3").symlink_to(sys.executable)
    yield f"{tools}:{os.environ['PATH']}"


def recordings(root: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """run.json of each recording below a root, by run and host."""
    found = {}
    for file in root.glob("run=*/host=*/rec=*/run.json"):
        run, host = file.parts[-4].removeprefix("run="), file.parts[-3].removeprefix("host=")
        assert (run, host) not in found
        found[run, host] = json.loads(file.read_text())
    return found


def told(*command: str | Path, **environment: str) -> str:
    """What a program writes, and that it succeeds."""
    done = subprocess.run(
        list(map(str, command)),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
