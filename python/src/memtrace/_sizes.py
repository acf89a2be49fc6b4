"""Amounts of memory as a person reads and writes them."""

from __future__ import annotations

import re

_DECIMAL = {unit: 1000**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB"))}
_BINARY = {unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), 1)}
_UNITS = {**_DECIMAL, **_BINARY}
_BY_SPELLING = {unit.lower(): size for unit, size in _UNITS.items()}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*\Z", re.IGNORECASE | re.ASCII)


def shown(size: int | None) -> str:
    """``231.4 MiB``; negative amounts have their sign, an unknown one is ``unknown``."""
    if size is None:
        return "unknown"
    unit, factor = "B", 1
    for larger, its_factor in _BINARY.items():
        if abs(size) < its_factor:
            break
        unit, factor = larger, its_factor
    return f"{size} B" if factor == 1 else f"{size / factor:,.1f} {unit}"


def parsed(size: object) -> int:
    """The bytes of ``"200 MiB"``, or of a number of bytes; else a ValueError that says why."""
    if isinstance(size, int) and not isinstance(size, bool):
        if size < 0:
            raise ValueError(f"{size} is less than nothing")
        return size
    match = _SIZE.match(size) if isinstance(size, str) else None
    factor = _BY_SPELLING.get(match[2].lower()) if match else None
    if match is None or factor is None:
        units = ", ".join(_UNITS)
        raise ValueError(f'{size!r} is not a size: write a number and a unit ({units}), "200 MiB"')
    return int(float(match[1]) * factor)
