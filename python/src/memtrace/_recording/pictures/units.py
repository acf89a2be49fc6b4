"""Amounts of memory, and names, as pictures tell them."""

from __future__ import annotations

import re

_GIB = 1 << 30
_MIB = 1 << 20


def unit(highest_bytes: int) -> tuple[int, str]:
    """The unit for amounts up to this, and its name."""
    return (_GIB, "GiB") if highest_bytes >= _GIB else (_MIB, "MiB")


def change(amount_bytes: int) -> str:
    """A change, with its sign and a unit of its own."""
    per, name = unit(abs(amount_bytes))
    return f"{amount_bytes / per:+.1f} {name}"


# As `is_hidden` of memtrace/src/report/visible.rs: controls, separators of lines, marks of
# direction, characters without width, and tags.
_HIDDEN = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f"
    r"\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def plain(name: str, width: int = 48) -> str:
    """A name with what would not show written out, as the report does it, and cut to so many
    characters. To matplotlib a dollar begins a formula, and a legend leaves out what begins with
    an underscore."""
    shown = _HIDDEN.sub(lambda found: _written_out(found[0]), name)
    short = shown if len(shown) <= width else f"{shown[: width - 1]}…"
    visible = f" {short}" if short.startswith("_") else short
    return visible.replace("$", r"\$")


def _written_out(hidden: str) -> str:
    code = ord(hidden)
    return _SHORT.get(hidden) or (f"\\x{code:02x}" if code < 0x80 else f"\\u{{{code:x}}}")
