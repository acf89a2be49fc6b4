"""The snippets of docs/run.md, and a root of recordings of three hosts to run them on."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "run.md"
CHAPTER = "Read with what you have"
# Which golden recording stands for which host. Their times overlap.
HOSTS = {"node1": "phases_on_gpus", "node2": "oom_kill", "node3": "vllm_start_up"}


def snippets() -> dict[str, str]:
    """The code of the chapter by the library."""
    chapter = re.search(rf"^## {CHAPTER}\n(.*?)^## ", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert chapter is not None
    parts = re.split(r"^### (.*)\n", chapter[1], flags=re.MULTILINE)[1:]
    found = {}
    for name, text in zip(parts[::2], parts[1::2]):
        (code,) = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        found[name] = code
    return found


def make_root(golden: Path, root: Path) -> Path:
    """Recordings as a job of three hosts has them below a root."""
    for host, name in HOSTS.items():
        place = root / "run=4711" / f"host={host}" / "rec=20260301T120000Z"
        shutil.copytree(golden / name, place)
    return root


def sums_of(library: str, root: Path) -> dict[int, int]:
    """What a snippet answers: bytes by the second since 1970."""
    scope: dict[str, Any] = {"root": str(root)}
    exec(compile(snippets()[library], library, "exec"), scope)
    sums = scope["sums"]
    rows = sums.rows() if hasattr(sums, "rows") else sums.itertuples(index=False, name=None)
    return {seconds(second): int(held) for second, held in rows}


def seconds(second: Any) -> int:
    """Spark has local times without a zone, here those of UTC."""
    return int((second if second.tzinfo else second.tz_localize("UTC")).timestamp())
