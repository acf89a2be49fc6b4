"""The checksums of a Parquet part, which memtrace writes into its footer.

CRC-32 as eight hexadecimal digits: of every column chunk, row group by row group, and of the
footer itself with zeros in the place of the digits.
"""

from __future__ import annotations

import zlib
from typing import Any, BinaryIO

_COLUMNS = b"memtrace.column_crc32"
_FOOTER = b"memtrace.footer_crc32"
_WIDTH = 8
_TAIL_BYTES = 8


def damaged(raw: BinaryIO, metadata: Any) -> list[str]:
    """What of a part is not as it was written: `its footer`, or columns by name.

    Nothing of a part without checksums: memtrace did not write them at first.
    """
    stated = (metadata.metadata or {}).get(_COLUMNS)
    if stated is None:
        return []
    found = [] if _is_footer_whole(raw) else ["its footer"]
    place = 0
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(column)
            raw.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
            crc = zlib.crc32(raw.read(chunk.total_compressed_size))
            if stated[place : place + _WIDTH] != b"%08x" % crc:
                found.append(f"column {chunk.path_in_schema}")
            place += _WIDTH
    return list(dict.fromkeys(found))


def _is_footer_whole(raw: BinaryIO) -> bool:
    end = raw.seek(0, 2)
    raw.seek(end - _TAIL_BYTES)
    length = int.from_bytes(raw.read(4), "little") + _TAIL_BYTES
    raw.seek(max(end - length, 0))
    footer = raw.read()
    # In the Thrift compact protocol a text is its field, its length and its bytes.
    at = footer.rfind(_FOOTER)
    start = at + len(_FOOTER) + 2
    if at < 0 or footer[start - 2 : start] != bytes([0x18, _WIDTH]):
        return False
    zeroed = footer[:start] + b"0" * _WIDTH + footer[start + _WIDTH :]
    return footer[start : start + _WIDTH] == b"%08x" % zlib.crc32(zeroed)
