"""What a recording, or a root of recordings, is read from: a folder of this machine, or what an
address names."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar, Union

if TYPE_CHECKING:
    from .bucket import Bucket

    Place = Union["Folder", Bucket]

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")
# More is no run.json of memtrace.
RUN_BYTES_MAX = 1 << 24
_HERE = "file://"


def place_of(path: str | os.PathLike[str]) -> Place:
    """The place that a path or an address names."""
    text = os.fspath(path)
    if text.startswith(_HERE + "/"):
        return Folder(text[len(_HERE) :])
    if "://" not in text:
        return Folder(text)
    from .bucket import Bucket

    return Bucket.at(text)


class Folder:
    """A folder of this machine. What is in it is looked up each time, since recordings grow."""

    is_remote = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __str__(self) -> str:
        return str(self.path)

    @property
    def name(self) -> str:
        """The last name of its path."""
        return self.path.absolute().name

    def below(self, name: str) -> Folder:
        """A folder in it."""
        return Folder(self.path / name)

    def names(self, folder: str = "") -> list[str]:
        """The names in it, or in a folder of it; none where there is none."""
        try:
            return sorted(os.listdir(self.path / folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def size(self, file: str) -> int:
        """How many bytes a file has."""
        return (self.path / file).stat().st_size

    def stamp(self, file: str) -> tuple[int, int]:
        """What is another when a file has been written to: its size and its time."""
        found = (self.path / file).stat()
        return found.st_size, found.st_mtime_ns

    def open(self, file: str) -> BinaryIO:
        """A file, for reading from any place in it."""
        return open(self.path / file, "rb")

    def run_json(self) -> bytes:
        """The file of such a name."""
        return self.read_small("run.json", RUN_BYTES_MAX)

    def read_small(self, file: str, most: int) -> bytes:
        """As many bytes of a file; `OSError` for a pipe or the like, which would never end."""
        path = self.path / file
        # Not blocking: to open a pipe waits for who writes into it.
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
        with open(number, "rb") as opened:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise OSError(f"{path} is no file")
            return opened.read(most)

    def check(self) -> None:
        """There is always a file system for what is in it."""

    def look_again(self) -> None:
        """Nothing is kept of what is in it."""

    def each(self, make: Callable[[_Item], _Made], items: Iterable[_Item]) -> Iterable[_Made]:
        """`make` of each item, in order."""
        return map(make, items)
