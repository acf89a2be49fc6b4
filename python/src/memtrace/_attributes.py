"""Turns names and attributes of any kind into JSON of bounded size.

A mark must never fail, nor cost much, because of what a program puts into it: values that
are not JSON become their repr, what is long is cut, what cannot be encoded is escaped.
"""

from __future__ import annotations

import numbers
import os
import reprlib
from collections.abc import Mapping
from json.encoder import encode_basestring as _quoted
from typing import Any

MAX_NAME_BYTES = 256
# The longest text of one value, in characters, and how deep values may nest.
MAX_TEXT = 8_192
MAX_DEPTH = 8
# Kept free for what says that something was cut, at every depth.
_RESERVE_BYTES = 1_024
# What is left of the budget when no further value is begun.
_LEAST_BYTES = 64
# One character takes at most this many bytes of JSON (a control character, as \u0000).
_BYTES_PER_CHARACTER = 6
# Integers outside of this range are no numbers to most readers of JSON.
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1

# What most marks hold fits for sure: so few attributes, of so many characters with their name.
_FEW = 16
_SHORT = 128


def name_json(name: Any) -> str:
    """A name as a JSON string of at most 256 bytes of text, and never empty."""
    if type(name) is str and name.isascii() and 0 < len(name) <= MAX_NAME_BYTES:
        return _quoted(name)
    text = _valid(name if type(name) is str else _described(name))
    if len(text) * 4 > MAX_NAME_BYTES:
        text = text[:MAX_NAME_BYTES].encode()[:MAX_NAME_BYTES].decode(errors="ignore")
    return _quoted(text or "(unnamed)")


def attributes_json(attrs: Mapping[str, Any], max_bytes: int) -> str:
    """Attributes as a JSON object of at most `max_bytes` bytes, cut where they are more."""
    plain = _plain_json(attrs) if len(attrs) <= _FEW else None
    if plain is not None:
        return plain
    return _Writer(max_bytes - _RESERVE_BYTES).mapping(attrs, 0)


def _plain_json(attrs: Mapping[str, Any]) -> str | None:
    """A few short attributes, as most marks have them; None where there is anything else."""
    written = []
    for key, value in attrs.items():
        if type(value) is str:
            text = _quoted(value) if len(value) <= _SHORT else None
        else:
            text = _token(value)
        if text is None or len(key) + len(text) > _SHORT or not (key + text).isascii():
            return None
        written.append(f"{_quoted(key)}:{text}")
    return f"{{{','.join(written)}}}"


class _Writer:
    """Writes values as JSON, as far as a number of bytes allows."""

    __slots__ = ("left",)

    def __init__(self, budget: int) -> None:
        self.left = budget

    def value(self, value: Any, depth: int) -> str:
        if type(value) is str:
            return self.text(value)
        token = _token(value)
        if token is None:
            return self.other(value, depth)
        # With what stands between two values.
        self.left -= len(token) + 2
        return token

    def other(self, value: Any, depth: int) -> str:
        try:
            if isinstance(value, Mapping):
                return self.mapping(value, depth) if depth < MAX_DEPTH else self.text("…")
            if isinstance(value, (list, tuple)):
                return self.sequence(value, depth) if depth < MAX_DEPTH else self.text("…")
            plain = _plain(value)
        except Exception:
            plain = _described(value)
        return self.text(plain) if isinstance(plain, str) else self.value(plain, depth)

    def mapping(self, values: Mapping[Any, Any], depth: int) -> str:
        written: list[str] = []
        for key, value in values.items():
            if self.left < _LEAST_BYTES:
                written.append(f'"…":"{len(values) - len(written)} more"')
                break
            name = self.text(key if type(key) is str else _described(key))
            written.append(f"{name}:{self.value(value, depth + 1)}")
        return f"{{{','.join(written)}}}"

    def sequence(self, values: Any, depth: int) -> str:
        written: list[str] = []
        for value in values:
            if self.left < _LEAST_BYTES:
                written.append(f'"… {len(values) - len(written)} more"')
                break
            written.append(self.value(value, depth + 1))
        return f"[{','.join(written)}]"

    def text(self, text: str) -> str:
        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT] + "…"
        if not text.isascii():
            text = _valid(text)
        quoted = _quoted(text)
        cost = len(quoted) if quoted.isascii() else len(quoted.encode())
        if cost > self.left:
            fitting = max(self.left, 0) // _BYTES_PER_CHARACTER
            quoted = _quoted(text[:fitting] + "…")
        self.left -= cost + 2
        return quoted


def _token(value: Any) -> str | None:
    """A number, a truth value or None as JSON; None for anything else."""
    kind = type(value)
    if kind is int and _MIN_INT <= value <= _MAX_INT:
        return str(value)
    # Neither NaN nor infinities are JSON.
    if kind is float and value - value == 0:
        return repr(value)
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    return None


def _plain(value: Any) -> Any:
    """The str, int or float that a value of another kind stands for, else its repr."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return hex(value) if type(value) is int else int.__int__(value)
    if isinstance(value, float):
        return repr(value) if type(value) is float else float.__float__(value)
    if type(value).__module__ == "numpy" and value.shape == ():
        item = value.item()
        return item if type(item) in (bool, int, float, str) else _described(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, os.PathLike):
        return _valid(os.fspath(value))
    return _described(value)


class _ShortRepr(reprlib.Repr):
    """A repr whose cost does not grow with the value's size, for the built-in kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = MAX_TEXT // 8
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 32
        self.maxdict = self.maxdeque = self.maxarray = 32

    def repr_bytes(self, value: Any, level: int) -> str:
        most = self.maxother // 4
        shown = repr(bytes(value[:most]))
        return shown if len(value) <= most else f"{shown}… ({len(value)} bytes)"

    repr_bytearray = repr_bytes
    repr_memoryview = repr_bytes


_short_repr = _ShortRepr()


def _described(value: Any) -> str:
    """A short text for any value; also for one whose own repr fails."""
    try:
        if type(value) is int:
            return hex(value) if abs(value) > _MAX_INT else str(value)
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if shape is not None and dtype is not None:
            # An array or a tensor. Its own repr would read it, and so wait for a device.
            return f"{type(value).__name__}(shape={tuple(shape)}, dtype={dtype})"
        return str(_short_repr.repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _valid(text: str) -> str:
    """The text, with what UTF-8 cannot hold (lone surrogates) as escapes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="backslashreplace").decode()
    return text
