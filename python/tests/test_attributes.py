"""Names and attributes of any kind become bounded JSON, and never an exception."""

from __future__ import annotations

import collections
import enum
import json
import math
import pathlib
from random import Random
from typing import Any

import pytest
from conftest import FakeRecorder, said

import memtrace
from memtrace import _attributes


def sent(recorder: FakeRecorder, **attrs: Any) -> dict[str, Any]:
    memtrace.mark("m", **attrs)
    (message,) = recorder.messages()
    return said(message)


class Color(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    HIGH = 3


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Array:
    shape = (2, 3)
    dtype = "float32"

    def __repr__(self) -> str:
        raise AssertionError("an array is described, not read")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([1, 2.5, None, True, "x"], [1, 2.5, None, True, "x"]),
        ((1, (2,)), [1, [2]]),
        ({"a": {"b": 1}, 2: 3, None: 4}, {"a": {"b": 1}, "2": 3, "None": 4}),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (2**64, "0x10000000000000000"),
        (Level.HIGH, 3),
        (Color.RED, "<Color.RED: 1>"),
        ({3, 1}, "{1, 3}"),
        (b"\xff\x00", "b'\\xff\\x00'"),
        (pathlib.PurePosixPath("/tmp/x"), "PurePosixPath('/tmp/x')"),
        (pathlib.Path("/tmp/x"), "/tmp/x"),
        (Unprintable(), "<Unprintable instance"),
        (Array(), "Array(shape=(2, 3), dtype=float32)"),
        (collections.OrderedDict(a=1), {"a": 1}),
        ("\ud800 \udcff", "\\ud800 \\udcff"),
        ("ü \x1b[31m \0 \n", "ü \x1b[31m \0 \n"),
    ],
)
def test_a_value_of_any_kind_arrives(recorder: FakeRecorder, value: Any, expected: Any) -> None:
    if isinstance(value, pathlib.PurePath):
        expected = str(value)
    got = sent(recorder, value=value)["value"]
    if isinstance(value, Unprintable):
        assert got.startswith(expected)
    else:
        assert got == expected


def test_numpy_numbers_are_numbers(recorder: FakeRecorder) -> None:
    numpy = pytest.importorskip("numpy")
    got = sent(
        recorder,
        i=numpy.int64(5),
        f=numpy.float32(0.5),
        b=numpy.bool_(True),
        n=numpy.float64("nan"),
        a=numpy.zeros((2, 2)),
    )
    assert (got["i"], got["f"], got["b"], got["n"]) == (5, 0.5, True, "nan")
    assert got["a"] == "ndarray(shape=(2, 2), dtype=float64)"


def circular() -> list[Any]:
    itself: list[Any] = []
    itself.append(itself)
    return itself


def deep() -> Any:
    value: Any = 1
    for _ in range(10_000):
        value = {"d": value}
    return value


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1_000_000,
        "ü" * 1_000_000,
        "\x01" * 1_000_000,
        "\U0001f600" * 1_000_000,
        "\ud800" * 1_000_000,
        b"x" * 10_000_000,
        bytearray(10_000_000),
        [1.2345678901234567e-300] * 100_000,
        ["\x01" * 100] * 100_000,
        {str(n): n for n in range(100_000)},
        {"\x01" * 50 + str(n): "ü" * 50 for n in range(100_000)},
        set(range(100_000)),
        10**100_000,
        [[[["x"] * 30] * 30] * 30] * 30,
        circular(),
        deep(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_huge_value_is_cut_and_the_mark_arrives(recorder: FakeRecorder, value: Any) -> None:
    got = sent(recorder, first="kept", value=value)
    assert got["first"] == "kept"
    assert "value" in got


def test_many_attributes_are_cut_and_the_cut_is_told(recorder: FakeRecorder) -> None:
    got = sent(recorder, **{f"key_{n}": n for n in range(100_000)})
    assert got["key_0"] == 0
    assert got["…"] == f"{100_000 - len(got) + 1} more"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("", "(unnamed)"),
        ("x" * 1000, "x" * 256),
        ("ü" * 1000, "ü" * 128),
        ("€" * 1000, "€" * 85),
        ("a" + "ü" * 1000, "a" + "ü" * 127),
        ("\ud800", "\\ud800"),
        ("\x1b[31m\0", "\x1b[31m\0"),
        (5, "5"),
        (None, "None"),
    ],
)
def test_a_name_of_any_kind_arrives_cut_at_a_character(
    recorder: FakeRecorder, name: Any, expected: str
) -> None:
    memtrace.mark(name)
    assert recorder.messages()[0]["name"] == expected


def test_a_mapping_that_fails_is_described(recorder: FakeRecorder) -> None:
    class Cruel(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise RuntimeError("no")

    assert sent(recorder, cruel=Cruel(a=1), n=1) == {"cruel": "{'a': 1}", "n": 1}


def test_no_message_is_longer_than_the_protocol_allows() -> None:
    random = Random(5)

    def anything(depth: int) -> Any:
        kind = random.randrange(7 if depth < 12 else 4)
        if kind == 0:
            return random.random() * 1e300
        if kind in (1, 2):
            character = random.choice(["x", "\x01", "ü", "€", "\U0001f600", "\ud800", '"'])
            return character * random.choice([1, 10, 1000, 100_000])
        if kind == 3:
            return random.randbytes(random.choice([1, 10_000]))
        count = random.choice([1, 300] if depth == 0 else [1, 4])
        if kind == 4:
            return [anything(depth + 4) for _ in range(count)]
        return {"\x01" * random.randrange(40) + str(n): anything(depth + 4) for n in range(count)}

    for _ in range(60):
        attrs = {"k": anything(0), "l": anything(0)}
        encoded = _attributes.attributes_json(attrs, 30_000).encode()
        assert len(encoded) <= 30_000
        assert isinstance(json.loads(encoded), dict)


def test_a_message_is_one_line_of_utf_8(recorder: FakeRecorder) -> None:
    memtrace.mark("a\nb", text="ü\r\n\u2028")
    (raw,) = recorder.raw()
    assert b"\n" not in raw
    assert json.loads(raw.decode())["attrs"]["text"] == "ü\r\n\u2028"
