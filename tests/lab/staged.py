"""Forty trees that hold memory in every way that is known, in a memory cgroup of their own and
beside a neighbour in one: what they held is what the kernel charged."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trial import Trial

PROGRAM = Path(__file__).parent / "programs" / "staged_tree.py"
COUNT = 40
NEIGHBOUR = "import time; held = bytearray(150 << 20); print('ready', flush=True); time.sleep(600)"


def staged() -> Iterator[Trial]:
    """Each tree twice. They take a quarter of an hour."""
    has_huge = _huge_pages()
    for seed in range(COUNT):
        command = [sys.executable, str(PROGRAM), str(seed), *(["huge"] if has_huge else [])]
        yield Trial(f"staged-{seed:02}", command, charged="own")
        neighbour = [sys.executable, "-c", NEIGHBOUR]
        yield Trial(f"staged-{seed:02}-shared", command, charged="shared", neighbour=neighbour)


def _huge_pages() -> bool:
    """Sees to a pool of huge pages, where the caller may."""
    try:
        Path("/proc/sys/vm/nr_hugepages").write_text("64")
        return int(Path("/proc/sys/vm/nr_hugepages").read_text()) >= 64
    except OSError:
        return False
