"""The checksums that memtrace writes: into the footer of a Parquet part, `run.json`, and each line
of `manifest.jsonl`.

CRC-32 as eight hexadecimal digits: of every column chunk, row group by row group, and of the
footer, the file or the line itself with zeros in the place of the digits.
"""

from __future__ import annotations

import zlib

COLUMNS = b"memtrace.column_crc32"
FOOTER = b"memtrace.footer_crc32"
_JSON = b'"checksum": "crc32:'
_WIDTH = 8


def is_column_whole(stated: bytes, place: int, chunk: bytes) -> bool:
    """Whether a column chunk is as it was written; `place` counts them through all row groups."""
    return stated[place * _WIDTH :][:_WIDTH] == b"%08x" % zlib.crc32(chunk)


def is_footer_whole(footer: bytes) -> bool:
    """Whether a footer is, with its length and the mark that ends a file."""
    # In the Thrift compact protocol a text is its field, its length and its bytes.
    at = footer.rfind(FOOTER)
    start = at + len(FOOTER) + 2
    if at < 0 or footer[start - 2 : start] != bytes([0x18, _WIDTH]):
        return False
    return _is_whole(footer, start)


def is_json_whole(text: bytes) -> bool | None:
    """Whether an object of JSON is; None where it has no checksum."""
    at = text.rfind(_JSON)
    return None if at < 0 else _is_whole(text, at + len(_JSON))


def _is_whole(text: bytes, start: int) -> bool:
    zeroed = text[:start] + b"0" * _WIDTH + text[start + _WIDTH :]
    return text[start : start + _WIDTH] == b"%08x" % zlib.crc32(zeroed)
