"""One Parquet part, of which no more is read than is asked for: its footer, and the columns of
those row groups that can have rows of a stretch. Each is held against its checksum.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Optional

from . import checksums
from .table import arrow

_CUT = b"memtrace.cut_boot_ns"
_REPLACES = b"memtrace.replaces_from"
TIME = "boot_ns"
# The end of a file is read in one go: all of most footers is there.
_END_BYTES = 1 << 14
_TAIL_BYTES = 8
# A gap of so much is read along: that takes no longer than a request more.
_NEAR_BYTES = 1 << 16

# From when until when, both included, in ns of `boot_ns`; None is without a bound.
Stretch = tuple[Optional[int], Optional[int]]
ALWAYS: Stretch = (None, None)


class Part:
    """A part, whose footer has been read."""

    def __init__(self, raw: BinaryIO, size: int) -> None:
        arrow()
        import pyarrow.parquet

        self._raw, self._size = raw, size
        footer = self._read(max(size - _END_BYTES, 0), size)
        length = int.from_bytes(footer[-_TAIL_BYTES:-4], "little") + _TAIL_BYTES
        if length > len(footer):
            footer = self._read(max(size - length, 0), size)
        footer = footer[-length:]
        # Before anything is made of it: what pyarrow finds in a damaged one can end the process.
        is_whole = checksums.is_footer_whole(footer)
        if is_whole is False:
            raise ValueError("the footer does not match its checksum")
        if is_whole is None and checksums.COLUMNS in footer:
            raise ValueError("the footer has no checksum")
        # What is in front of its footer nobody asks a file of which only that is read.
        read_from = arrow().BufferReader(b"PAR1" + footer)
        self._metadata = pyarrow.parquet.read_metadata(read_from)
        self._stated = self._texts.get(checksums.COLUMNS)
        self.damages: dict[str, None] = {}
        """Which columns are not as they were written, as far as it was read. None of a part without
        checksums: memtrace did not write them at first."""

    @property
    def cut_ns(self) -> int | None:
        """The time up to which it has the rows of its segment; None where it has all."""
        cut = self._texts.get(_CUT)
        return None if cut is None else int(cut)

    def replaces_from(self, number: int) -> int:
        """The rows of the parts from this number on up to its own, which is given, are in it."""
        return int(self._texts.get(_REPLACES, number))

    @property
    def texts(self) -> dict[bytes, bytes]:
        """All texts that its metadata has."""
        return self._texts

    @property
    def rows(self) -> int:
        """How many it has."""
        return int(self._metadata.num_rows)

    def read(self, columns: Iterable[str] | None = None, stretch: Stretch = ALWAYS) -> Any:
        """The rows of a stretch as a pyarrow.Table: all columns, or those of these that it has."""
        groups = [group for group in self._groups() if self._can_have(group, stretch)]
        places = self._places(columns)
        with self._decoder(groups, places) as file:
            frame = file.read_row_groups(groups, [self._names[place] for place in places])
        return within(frame, stretch)

    def read_through(self) -> None:
        """Reads all of it, a row group at a time, and keeps nothing."""
        places = self._places(None)
        for group in self._groups():
            with self._decoder([group], places) as file:
                for _ in file.iter_batches(row_groups=[group]):
                    pass

    @property
    def _texts(self) -> dict[bytes, bytes]:
        return self._metadata.metadata or {}

    @property
    def _names(self) -> list[str]:
        return list(self._metadata.schema.names)

    def _groups(self) -> range:
        return range(self._metadata.num_row_groups)

    def _places(self, columns: Iterable[str] | None) -> list[int]:
        names = self._names
        wanted = names if columns is None else set(columns)
        return [place for place, name in enumerate(names) if name in wanted]

    def _can_have(self, group: int, stretch: Stretch) -> bool:
        """Whether there can be rows of a stretch, by what the footer says of their times."""
        if stretch == ALWAYS or TIME not in self._names:
            return True
        times = self._metadata.row_group(group).column(self._names.index(TIME)).statistics
        if times is None or not times.has_min_max:
            return True
        since, until = stretch
        return (since is None or times.max >= since) and (until is None or times.min <= until)

    def _decoder(self, groups: Sequence[int], places: Sequence[int]) -> Any:
        """The file for whoever decodes it, with the bytes of these columns."""
        import pyarrow.parquet

        wanted = {}
        for group in groups:
            for place in places:
                chunk = self._metadata.row_group(group).column(place)
                start = chunk.data_page_offset
                if chunk.dictionary_page_offset is not None:
                    start = min(start, chunk.dictionary_page_offset)
                wanted[group, place] = (start, start + chunk.total_compressed_size)
        chunks = dict(zip(wanted, self._read_all(list(wanted.values()))))
        for (group, place), chunk in chunks.items():
            at = group * len(self._names) + place
            if self._stated is not None and not checksums.is_column_whole(self._stated, at, chunk):
                self.damages[f"column {self._names[place]}"] = None
        read = {wanted[key][0]: chunk for key, chunk in chunks.items()}
        # Not buffered: that would read what is between columns, too.
        source = _Read(self._size, read)
        return pyarrow.parquet.ParquetFile(source, metadata=self._metadata, pre_buffer=False)

    def _read_all(self, ranges: list[tuple[int, int]]) -> Iterator[bytes]:
        """The bytes of ranges; what is near to each other is read together."""
        together: list[list[int]] = []
        for start, end in sorted(ranges):
            if together and start <= together[-1][1] + _NEAR_BYTES:
                together[-1][1] = max(together[-1][1], end)
            else:
                together.append([start, end])
        read = [(start, self._read(start, end)) for start, end in together]
        for start, end in ranges:
            begin, piece = next(each for each in reversed(read) if each[0] <= start)
            yield piece[start - begin : end - begin]

    def _read(self, start: int, end: int) -> bytes:
        self._raw.seek(start)
        return self._raw.read(end - start)


def within(frame: Any, stretch: Stretch) -> Any:
    """The rows of a table that are of a stretch."""
    since, until = stretch
    if stretch == ALWAYS or TIME not in frame.column_names:
        return frame
    import pyarrow.compute as compute

    if since is not None:
        frame = frame.filter(compute.greater_equal(frame.column(TIME), since))
    if until is not None:
        frame = frame.filter(compute.less_equal(frame.column(TIME), until))
    return frame


class _Read(io.RawIOBase):
    """A file of which some pieces were read, by where they begin."""

    def __init__(self, size: int, pieces: dict[int, bytes]) -> None:
        self._size, self._pieces, self._at = size, pieces, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, to: int, whence: int = io.SEEK_SET) -> int:
        self._at = to + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, count: int = -1) -> bytes:
        start = max((start for start in self._pieces if start <= self._at), default=self._at)
        piece = self._pieces.get(start, b"")
        begin = self._at - start
        read = piece[begin:] if count < 0 else piece[begin : begin + count]
        self._at += len(read)
        return read
