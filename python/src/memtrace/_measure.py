"""What a section takes and what stays after it, in this process and its children, without a
recorder."""

from __future__ import annotations

import gc
from typing import NamedTuple

from . import _children, _host, _peak


class Measure(NamedTuple):
    """What a section took. None is unknown."""

    rise_bytes: int | None
    """How far memory rose above what was held when it began."""
    rise_at_most_bytes: int | None
    rise_at_least_bytes: int | None
    """The bounds of it, also where the kernel's mark could not be reset."""
    own_peak_bytes: int | None
    """The highest RSS of this process."""
    stayed_bytes: int | None
    """Anonymous memory that there was not before, and what children hold that live on."""
    children_bytes: int | None
    """The most that its children held together."""
    error_bytes: int | None
    """How far the kernel's figures can be from the truth."""


class Section:
    """What is measured: a phase, too. With `is_exact` it takes its time: garbage is collected, free
    memory given back, and what stays is counted page by page."""

    def __init__(self, name: str, sampler: _children.Sampler, *, is_exact: bool) -> None:
        self._is_exact = is_exact
        self._sampler = sampler
        self.peak = _peak.peak(name)

    def __enter__(self) -> Section:
        self._begin_anon = self._anon() if self._is_exact else None
        self._sampler.begin()
        self.peak.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.peak.__exit__(kind, *rest)
        self._children = self._sampler.end()
        self._end_anon = self._anon() if self._is_exact else None

    def _anon(self) -> int | None:
        gc.collect()
        _host.give_back_free()
        return _host.anon_bytes()

    def measure(self) -> Measure:
        """The figures, when it has ended."""
        peak, children = self.peak, self._children
        begin = peak.begin_bytes
        rise = _more(peak.bytes, begin)
        at_most, at_least = _more(peak.at_most_bytes, begin), _more(peak.end_bytes, begin)
        if begin is None:
            # getrusage alone: it was between nothing and the highest until then.
            at_most, at_least = peak.at_most_bytes, _more(peak.bytes, peak._begin_mark)
        stayed = _more(self._end_anon, self._begin_anon)
        if not self._is_exact:
            stayed = _more(peak.end_anon_bytes, peak.begin_anon_bytes)
        if children is None:
            # Only the recorder may know.
            held = peak.child_peak_bytes
        else:
            held = children.peak_bytes
            if stayed is not None:
                stayed += max(children.end_bytes - children.begin_bytes, 0)
            if held and begin is not None:
                with_them = children.total_peak_bytes - begin - children.begin_bytes
                rise, at_most = _highest(rise, with_them), _highest(at_most, with_them)
                at_least = _highest(at_least, with_them)
        return Measure(rise, at_most, at_least, peak.bytes, stayed, held, peak.error_bytes)


def _more(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(now - before, 0)


def _highest(known: int | None, other: int) -> int | None:
    return None if known is None else max(known, other)
