"""The checksums of a Parquet part, which memtrace writes into its footer.

CRC-32 as eight hexadecimal digits: of every column chunk, row group by row group, and of the
footer itself with zeros in the place of the digits.
"""

from __future__ import annotations

import zlib

COLUMNS = b"memtrace.column_crc32"
_FOOTER = b"memtrace.footer_crc32"
_WIDTH = 8


def is_column_whole(stated: bytes, place: int, chunk: bytes) -> bool:
    """Whether a column chunk is as it was written; `place` counts them through all row groups."""
    return stated[place * _WIDTH :][:_WIDTH] == b"%08x" % zlib.crc32(chunk)


def is_footer_whole(footer: bytes) -> bool:
    """Whether a footer is, with its length and the mark that ends a file."""
    # In the Thrift compact protocol a text is its field, its length and its bytes.
    at = footer.rfind(_FOOTER)
    start = at + len(_FOOTER) + 2
    if at < 0 or footer[start - 2 : start] != bytes([0x18, _WIDTH]):
        return False
    zeroed = footer[:start] + b"0" * _WIDTH + footer[start + _WIDTH :]
    return footer[start : start + _WIDTH] == b"%08x" % zlib.crc32(zeroed)
