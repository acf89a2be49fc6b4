"""The checksums that memtrace writes: into the footer of a Parquet part, `run.json`, each line
of `manifest.jsonl`, and each message of a segment of the spool.

CRC-32 as eight hexadecimal digits: of every column chunk, row group by row group, and of the
footer, the file or the line itself with zeros in the place of the digits. The head of a message
ends with a mark, the CRC-32 of its body, and that of all before itself, four bytes each.
"""

from __future__ import annotations

import zlib

COLUMNS = b"memtrace.column_crc32"
FOOTER = b"memtrace.footer_crc32"
_JSON = b'"checksum": "crc32:'
_WIDTH = 8
_MESSAGE = b"mtcrc32\n"


def is_column_whole(stated: bytes, place: int, chunk: bytes) -> bool:
    """Whether a column chunk is as it was written; `place` counts them through all row groups."""
    return stated[place * _WIDTH :][:_WIDTH] == b"%08x" % zlib.crc32(chunk)


def is_footer_whole(footer: bytes) -> bool | None:
    """Whether a footer is, with its length and the mark that ends a file; None where it has no
    checksum."""
    at = footer.rfind(FOOTER)
    if at < 0:
        return None
    # In the Thrift compact protocol a text is its field, its length and its bytes.
    start = at + len(FOOTER) + 2
    return footer[start - 2 : start] == bytes([0x18, _WIDTH]) and _is_whole(footer, start)


def is_json_whole(text: bytes) -> bool | None:
    """Whether an object of JSON is; None where it has no checksum."""
    at = text.rfind(_JSON)
    return None if at < 0 else _is_whole(text, at + len(_JSON))


def stated_of_body(head: bytes) -> int | None:
    """The checksum of its body that the head of a message has; None where it has none.
    `ValueError` for a head that is not as it was written."""
    if head[-16:-8] != _MESSAGE:
        return None
    if int.from_bytes(head[-4:], "little") != zlib.crc32(head[:-4]):
        raise ValueError("the head of a message does not match its checksum")
    return int.from_bytes(head[-8:-4], "little")


def _is_whole(text: bytes, start: int) -> bool:
    zeroed = text[:start] + b"0" * _WIDTH + text[start + _WIDTH :]
    return text[start : start + _WIDTH] == b"%08x" % zlib.crc32(zeroed)
