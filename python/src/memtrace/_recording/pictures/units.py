"""Amounts of memory, and names, as pictures tell them."""

from __future__ import annotations

_GIB = 1 << 30
_MIB = 1 << 20


def unit(highest_bytes: int) -> tuple[int, str]:
    """The unit for amounts up to this, and its name."""
    return (_GIB, "GiB") if highest_bytes >= _GIB else (_MIB, "MiB")


def change(amount_bytes: int) -> str:
    """A change, with its sign and a unit of its own."""
    per, name = unit(abs(amount_bytes))
    return f"{amount_bytes / per:+.1f} {name}"


def plain(name: str, width: int = 48) -> str:
    """A name as it is, cut to so many characters: to matplotlib a dollar begins a formula, and a
    legend leaves out what begins with an underscore."""
    short = name if len(name) <= width else f"{name[: width - 1]}…"
    visible = f" {short}" if short.startswith("_") else short
    return visible.replace("$", r"\$")
