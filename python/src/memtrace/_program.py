"""The program `memtrace`, which not everybody with this package has."""

from __future__ import annotations

import os
import shutil

ENVIRONMENT = "MEMTRACE"


def path() -> str:
    """Where it is; `FileNotFoundError` says how to get it."""
    wanted = os.environ.get(ENVIRONMENT) or "memtrace"
    found = shutil.which(wanted)
    if found is None:
        raise FileNotFoundError(
            f"there is no program {wanted}: install memtrace, or name it in {ENVIRONMENT}"
        )
    return found
