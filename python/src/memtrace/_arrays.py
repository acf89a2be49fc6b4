"""The memory of the arrays that an object holds: NumPy's, torch's, and pairs of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NAMED = 5


def attributes(owner: object) -> dict[str, Any]:
    """What the arrays in an object's attributes hold, as attributes of a mark.

    ``arrays_bytes`` is their sum; ``arrays`` names the largest, with MiB. Memory that several
    look at (a tensor and the NumPy view of it) counts once, for the first of them; a buffer whose
    own attributes are arrays counts as one. Empty without any.
    """
    seen: set[int] = set()
    held: list[tuple[int, str]] = []
    for name, value in _variables(owner):
        parts = [value, *(part for _, part in _variables(value))]
        held.append((sum(_new_bytes(part, seen) for part in parts), name))
    held.sort(key=lambda one: (-one[0], one[1]))
    total = sum(count for count, _ in held)
    if total == 0:
        return {}
    named = [f"{name} {count / 2**20:.1f} MiB" for count, name in held[:_NAMED] if count > 0]
    return {"arrays_bytes": total, "arrays": ", ".join(named)}


def _variables(owner: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(owner, "__dict__", {}).items() if not isinstance(owner, type) else ()


def _new_bytes(value: Any, seen: set[int]) -> int:
    """The size of an array whose memory was not seen yet; 0 of everything else."""
    # Asked of the type: an object may answer to any name.
    kind = type(value)
    is_tensor = hasattr(kind, "untyped_storage")
    if not is_tensor and not hasattr(kind, "__array_interface__"):
        return 0
    try:
        if is_tensor:
            storage = value.untyped_storage()
            start, count = storage.data_ptr(), storage.nbytes()
        else:
            start, count = value.__array_interface__["data"][0], value.nbytes
    except Exception:
        # A tensor without memory of its own (sparse, fake) says so by an exception.
        return 0
    if count == 0 or start in seen:
        return 0
    seen.add(start)
    return int(count)
