"""Amounts as a person writes them."""

from __future__ import annotations

import pytest

from memtrace._sizes import parsed, shown


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("200 MiB", 200 << 20),
        ("200MB", 200_000_000),
        (" 1.5 gib ", 3 << 29),
        ("0 B", 0),
        (4096, 4096),
    ],
)
def test_a_size_is_read(written: str | int, size: int) -> None:
    assert parsed(written) == size


@pytest.mark.parametrize("written", ["200", "MiB", "-1 MiB", "1 M", "1e3 MB", "", None, True, 1.5])
def test_what_is_no_size_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parsed(written)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (-(3 << 20), "-3.0 MiB"),
        (5000 << 40, "5,000.0 TiB"),
        (None, "unknown"),
    ],
)
def test_a_size_is_shown(size: int | None, text: str) -> None:
    assert shown(size) == text
