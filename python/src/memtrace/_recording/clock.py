"""The span of a recording and its two clocks, and instants as a person names them."""

from __future__ import annotations

import bisect
import datetime
import re
from typing import Any, Union

SECOND = 1_000_000_000
_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": SECOND, "": SECOND, "m": 60 * SECOND,
          "min": 60 * SECOND, "h": 3_600 * SECOND, "d": 86_400 * SECOND}  # fmt: skip
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)

# Seconds since the start, a length of time since then, a moment on the wall clock (UTC where
# it names no zone), or text: "+83.2s", "1m30s", "2026-03-01T12:03:07Z".
Moment = Union[float, str, datetime.timedelta, datetime.datetime]


def length_ns(length: float | str | datetime.timedelta) -> int:
    """A length of time: seconds, a timedelta, or text as ``100ms`` and ``1m30s``."""
    if isinstance(length, datetime.timedelta):
        return round(length / datetime.timedelta(microseconds=1)) * 1_000
    if isinstance(length, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*", length)
        if not parts or "".join(f"{a}{b}" for a, b in parts) != re.sub(r"\s", "", length):
            raise ValueError(f"{length!r} is not a length of time such as 100ms or 1m30s")
        unknown = [unit for _, unit in parts if unit not in _UNITS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} in {length!r} is not one of {', '.join(_UNITS)}")
        return round(sum(float(amount) * _UNITS[unit] for amount, unit in parts))
    return round(length * SECOND)


class Clock:
    """When a recording began and ended, and what the wall clock showed meanwhile."""

    def __init__(self, run: dict[str, Any], last_ns: int | None) -> None:
        readings = sorted((r["boot_ns"], r["wall_ns"]) for r in run.get("clocks", ()))
        if not readings:
            raise ValueError("run.json holds no clock reading")
        self._boot: list[int] = [boot for boot, _ in readings]
        self._wall: list[int] = [wall for _, wall in readings]
        self.start_ns: int = self._boot[0]
        self.end_ns: int = self._boot[-1]
        if run.get("state") != "closed" and last_ns is not None:
            self.end_ns = max(self.end_ns, last_ns)

    def to_wall(self, boot_ns: int) -> int:
        """Wall time, in ns since 1970, by the last reading before."""
        at = max(bisect.bisect_right(self._boot, boot_ns) - 1, 0)
        return boot_ns - self._boot[at] + self._wall[at]

    def to_boot(self, wall_ns: int) -> int:
        """The recording's clock at a wall time."""
        at = max(bisect.bisect_right(self._wall, wall_ns) - 1, 0)
        return wall_ns - self._wall[at] + self._boot[at]

    def resolve(self, moment: Moment) -> int:
        """Where a moment of the recording lies, on its clock."""
        boot = self.boot_of(moment)
        # A second of grace on both sides: people read times that were rounded.
        if not self.start_ns - SECOND <= boot <= self.end_ns + SECOND:
            seconds = (self.end_ns - self.start_ns) / SECOND
            raise ValueError(
                f"{moment!r} is outside of the recording, which is {seconds:.1f} s long"
            )
        return min(max(boot, self.start_ns), self.end_ns)

    def boot_of(self, moment: Moment) -> int:
        """Where any moment lies, on the recording's clock."""
        if isinstance(moment, str):
            text = moment.strip()
            try:
                return self.start_ns + length_ns(text[1:] if text.startswith("+") else text)
            except ValueError:
                # fromisoformat knows Z since Python 3.11.
                iso = re.sub(r"[zZ]\Z", "+00:00", text)
                try:
                    return self._of_datetime(datetime.datetime.fromisoformat(iso))
                except ValueError:
                    raise ValueError(
                        f"{moment!r} is not a time: use 'peak', an offset from the start such as "
                        "'+83.2s' or '+1h02m', or a date and time such as '2026-03-01T12:03:07Z'"
                    ) from None
        if isinstance(moment, datetime.datetime):
            return self._of_datetime(moment)
        return self.start_ns + length_ns(moment)

    def _of_datetime(self, moment: datetime.datetime) -> int:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        return self.to_boot(round((moment - _EPOCH) / datetime.timedelta(microseconds=1)) * 1_000)
