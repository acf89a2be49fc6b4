"""Which files of rows a recording has: `manifest.jsonl`, a line of JSON for each that was made, and
what each file tells of itself. So one that is missing, doubled, exchanged or of another recording
is known. Recordings of the first versions of memtrace have none, and no id.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import checksums

if TYPE_CHECKING:
    from .places import Place

FILE = "manifest.jsonl"
_SPOOL = "spool"
_RECORDING, _TABLE, _SEQ = b"memtrace.recording", b"memtrace.table", b"memtrace.seq"
_NAME = re.compile(r"\w+\Z", re.ASCII)
_NOT_UNDERSTOOD = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
# No manifest that is read is longer.
_BYTES_MAX = 1 << 27
# Parts become one, and segments parts, while somebody looks.
_ATTEMPTS = 3


class _Facts(NamedTuple):
    """What tells one part from another."""

    rows: int
    size: int
    footer_crc32: str


class Manifest:
    """The files of a recording with an id."""

    def __init__(self, place: Place, run: Mapping[str, Any]) -> None:
        self._place, self._run = place, run
        self._since: tuple[tuple[int, int] | None, Manifest] | None = None
        self._id = str(run["id"])
        self._is_open = run.get("state") == "recording"
        # Of a recording that is carried while it goes on, the spool stays where it is written.
        self._has_spool = self._is_open and ("place" not in run or _SPOOL in place.names())
        self.problems: list[str] = []
        """What is missing, one sentence each."""
        for attempt in range(_ATTEMPTS):
            self.problems.clear()
            self._read(place)
            self._note_missing(place)
            if not self.problems or not self._is_open or attempt == _ATTEMPTS - 1:
                break
            place.look_again()
        if not self._is_open and self._is_known and not self._is_closed:
            self.problems.append(
                f"{FILE} ends before the recording does: what is missing is not known"
            )

    def _read(self, place: Place) -> None:
        self._parts: dict[str, dict[int, list[_Facts]]] = {}
        # Numbers of parts that another has replaced, of each table.
        self._replaced: dict[str, list[range]] = {}
        self._segments: dict[str, set[int]] = {}
        self._lost: list[str] = []
        self._is_closed, self._is_whole, self._is_known = False, True, True
        try:
            text = place.read_small(FILE, _BYTES_MAX + 1)
        except OSError as error:
            self._is_known = False
            is_absent = isinstance(error, FileNotFoundError)
            # Who carries a recording puts its manifest behind the first parts.
            if not is_absent or not self._is_open or self._has_spool:
                why = "is missing" if is_absent else f"can't be read: {error}"
                self.problems.append(f"{FILE} {why}")
            return
        if len(text) > _BYTES_MAX:
            self._is_known = False
            self.problems.append(f"{FILE} is too long to be read: what is missing is not known")
            return
        for line in text.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                # A recorder that is killed leaves half a line.
                if self._is_closed:
                    self.problems.append(f"{FILE} ends within a line")
                continue
            if not checksums.is_json_whole(line):
                self._is_whole = False
                self.problems.append(f"{FILE}: a line does not match its checksum")
                continue
            # What is not understood is of a newer memtrace.
            with contextlib.suppress(*_NOT_UNDERSTOOD):
                self._take(json.loads(line))
            if not self._is_known:
                return

    def _take(self, line: dict[str, Any]) -> None:
        kind = line.get("kind")
        if kind == "recording" and line["id"] != self._id:
            self._is_known = False
            self.problems.append(f"{FILE} belongs to another recording, {line['id']}")
        elif kind == "closed":
            self._is_closed = True
        elif kind in ("segment", "lost", "part"):
            table, seq = line["table"], line["seq"]
            if not _NAME.match(table) or type(seq) is not int:
                raise ValueError("no file of a table")
            self._take_file(kind, table, seq, line)

    def _take_file(self, kind: str, table: str, seq: int, line: dict[str, Any]) -> None:
        segments = self._segments.setdefault(table, set())
        if kind == "segment":
            segments.add(seq)
        elif kind == "lost":
            segments.discard(seq)
            self._lost.append(_segment(table, seq))
        else:
            facts = _Facts(int(line["rows"]), int(line["bytes"]), str(line["footer_crc32"]))
            left = set(line.get("segments", ()))
            segments.difference_update([one for one in segments if one <= seq and one not in left])
            parts = self._parts.setdefault(table, {})
            # The first recordings only say whether all earlier parts are replaced.
            first = 0 if line.get("replaces_before") else line.get("replaces_from", seq)
            replaced = range(int(first), seq)
            if replaced:
                self._replaced.setdefault(table, []).append(replaced)
                for one in [one for one in parts if one in replaced]:
                    del parts[one]
            parts.setdefault(seq, []).append(facts)

    def _note_missing(self, place: Place) -> None:
        if not self._is_known:
            return
        missing = []
        for table, parts in self._parts.items():
            there = set(place.names(table))
            for seq, facts in parts.items():
                if _part(seq) not in there:
                    missing.append(f"{table}/{_part(seq)} is missing, with {facts[-1].rows} rows")
        spool = set(place.names(_SPOOL)) if self._has_spool else set()
        for table, segments in self._segments.items():
            for name in (_segment(table, seq) for seq in segments if self._has_spool):
                if name not in spool:
                    self._lost.append(name)
        missing += [f"{_SPOOL}/{name} is missing" for name in self._lost]
        self.problems += sorted(missing)

    def refusal(self, table: str, seq: int, stated: Mapping[bytes, bytes] | None) -> str | None:
        """Why the rows of a file are not the recording's, by the metadata of its schema."""
        stated = stated or {}
        of, of_table, of_seq = (
            stated.get(key, b"?").decode(errors="replace") for key in (_RECORDING, _TABLE, _SEQ)
        )
        if of != self._id:
            return f"it belongs to another recording, {of}"
        if (of_table, of_seq) != (table, str(seq)):
            return (
                f"it was file {of_seq} of {of_table} when it was written: files were copied, or "
                "have changed their names"
            )
        return None

    def refusal_of_part(
        self, table: str, seq: int, stated: Mapping[bytes, bytes], rows: int, size: int
    ) -> str | None:
        """The same of a part; empty where it is one that another has taken the place of."""
        why = self._refusal_of_part(table, seq, stated, rows, size)
        if not why or not self._is_known:
            return why
        return self._as_it_is_now()._refusal_of_part(table, seq, stated, rows, size)

    def _as_it_is_now(self) -> Manifest:
        """The same, read again when the file has changed: rows may have been added since."""
        try:
            stamp = self._place.stamp(FILE)
        except OSError:
            stamp = None
        since = self._since
        if since is None or since[0] != stamp:
            since = self._since = stamp, Manifest(self._place, self._run)
        return since[1]

    def _refusal_of_part(
        self, table: str, seq: int, stated: Mapping[bytes, bytes], rows: int, size: int
    ) -> str | None:
        why = self.refusal(table, seq, stated)
        if why or not self._is_known:
            return why
        parts = self._parts.get(table, {})
        if seq in parts:
            crc32 = stated.get(checksums.FOOTER, b"").decode(errors="replace")
            is_named = _Facts(rows, size, crc32) in parts[seq]
            return None if is_named else f"it is not the file that {FILE} names"
        # What a recorder that was killed, or goes on, has not named is newer than the rest.
        is_newer = not self._is_closed and seq > max(parts, default=0)
        if is_newer or not self._is_whole:
            return None
        if self._is_open and any(seq in replaced for replaced in self._replaced.get(table, ())):
            return ""
        return f"it is not a file of the recording ({FILE})"


def _part(seq: int) -> str:
    return f"part-{seq:05}.parquet"


def _segment(table: str, seq: int) -> str:
    return f"{table}-{seq:05}.arrows"
