"""Waiting until something is so."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(is_so: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Waits."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"after {seconds:.0f} s it is not so that {what}"
        time.sleep(0.2)
