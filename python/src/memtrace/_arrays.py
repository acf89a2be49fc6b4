"""The memory of the arrays that an object holds: NumPy's, torch's, and pairs of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

_NAMED = 5
_HOST = "cpu"
# NumPy shortens such chains itself; an object of any class may stand at their end.
_LINKS = 8


class _Memory(NamedTuple):
    """A stretch of the addresses of one device."""

    device: str
    start: int
    end: int


def attributes(owner: object) -> dict[str, Any]:
    """What the arrays in an object's attributes keep in use, as attributes of a mark.

    ``arrays_bytes`` is their sum on the host, ``arrays_gpu_bytes`` that on GPUs, where there are
    any; ``arrays`` names the largest of both, with MiB. A view counts as all that it keeps, and
    memory that several look at (a tensor and the NumPy view of it) once, for one of them. A
    buffer whose own attributes are all arrays counts as one. Files that are mapped do not count.
    Empty without any. What attributes of foreign classes raise when they are asked goes through.
    """
    found = [(memory, name) for name, held in _held(owner) for memory in held]
    # Where two begin together the larger first: the other is a part of it.
    found.sort(key=lambda each: (each[0].device, each[0].start, -each[0].end))
    sums = {"arrays_bytes": 0, "arrays_gpu_bytes": 0}
    by_name: dict[str, int] = {}
    device, counted_to = "", 0
    for memory, name in found:
        if memory.device != device:
            device, counted_to = memory.device, 0
        count = max(memory.end - max(memory.start, counted_to), 0)
        counted_to = max(counted_to, memory.end)
        sums["arrays_bytes" if device == _HOST else "arrays_gpu_bytes"] += count
        by_name[name] = by_name.get(name, 0) + count
    largest = sorted(by_name.items(), key=lambda each: (-each[1], each[0]))[:_NAMED]
    named = [f"{name} {count / 2**20:.1f} MiB" for name, count in largest if count > 0]
    told: dict[str, Any] = {name: count for name, count in sums.items() if count > 0}
    return {**told, "arrays": ", ".join(named)} if told else {}


def _held(owner: object) -> list[tuple[str, list[_Memory]]]:
    """The memory that each attribute of an object keeps, in the order of their names."""
    held = []
    for name, value in _variables(owner):
        parts = [value]
        if not _is_array(value):
            parts = [part for _, part in _variables(value)]
            # Anything else may lead to anywhere: back to its owner, and to all that this holds.
            if not all(map(_is_array, parts)):
                continue
        held.append((str(name), [memory for part in parts for memory in _memory(part)]))
    return held


def _variables(owner: object) -> list[tuple[Any, Any]]:
    variables = getattr(owner, "__dict__", None)
    # A list, because what is asked of the values may add one, as may another thread.
    return list(variables.items()) if type(variables) is dict else []


# Asked of the type: an object may answer to any name.
def _is_tensor(value: object) -> bool:
    return hasattr(type(value), "untyped_storage")


def _is_array(value: object) -> bool:
    return _is_tensor(value) or hasattr(type(value), "__array_interface__")


def _memory(array: Any) -> list[_Memory]:
    """The memory that an array keeps in use; none where it has none of its own."""
    try:
        links = list(_links(array))
        if any(kind.__name__ == "memmap" for link in links for kind in type(link).__mro__):
            return []
        # A view keeps all of what it is a view of.
        whole = [link for link in links if _is_array(link)][-1]
        device = _HOST
        if _is_tensor(whole):
            storage = whole.untyped_storage()
            start, count = int(storage.data_ptr()), int(storage.nbytes())
            if storage.device.type != _HOST:
                device = str(storage.device)
        else:
            start, count = int(whole.__array_interface__["data"][0]), int(whole.nbytes)
    except Exception:
        # A tensor without memory of its own (sparse, fake) says so by an exception.
        return []
    # One of the device `meta` has a size, and nothing behind it.
    return [_Memory(device, start, start + count)] if start else []


def _links(array: Any) -> Iterator[Any]:
    """An array, what it is a view of, and what that is a view of; not beyond a tensor."""
    link = array
    for _ in range(_LINKS):
        if link is None:
            return
        yield link
        link = None if _is_tensor(link) else getattr(link, "base", None)
