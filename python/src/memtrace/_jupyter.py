"""The magic ``%%memtrace``: runs a cell and shows its peak, what stays, and its phases."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _children, _host, _recorder
from ._measure import Measure, Section
from ._sizes import shown


class Phase(NamedTuple):
    """A phase that ended in the cell."""

    name: str
    depth: int
    seconds: float
    change_bytes: int | None
    """What RSS changed by."""
    peak_bytes: int | None
    """Of a `memtrace.peak`."""


class _Listener(_recorder.Recorder):
    """Keeps the phases of a cell, and hands every mark on to the recorder, if one runs."""

    __slots__ = ("_behind", "_open", "phases")

    def __init__(self, behind: _recorder.Recorder | None) -> None:
        super().__init__("" if behind is None else behind.path)
        self._behind = behind
        # By span: when it began, the RSS then, and its place among the phases.
        self._open: dict[int, tuple[int, Any, int]] = {}
        self.phases: list[Phase | None] = []

    def tell(
        self,
        kind: str,
        name: Any,
        boot: int,
        span: int | None = None,
        attrs: Mapping[str, Any] | None = None,
        asks: bool = False,
    ) -> bool:
        held = attrs or {}
        rss = held.get(_host.RSS_ATTRIBUTE)
        if kind == "begin" and span is not None:
            self._open[span] = boot, rss, len(self.phases)
            self.phases.append(None)
        elif kind == "end" and span in self._open:
            began, rss_before, place = self._open.pop(span)
            change = None if rss is None or rss_before is None else rss - rss_before
            peak = held.get("peak_bytes")
            self.phases[place] = Phase(
                str(name), len(self._open), (boot - began) / 1e9, change, peak
            )
        if self._behind is None:
            # Nobody to ask about children later.
            return not asks
        return self._behind.tell(kind, name, boot, span, attrs, asks)

    def forget_parent(self) -> None:
        if self._behind is not None:
            self._behind.forget_parent()


class CellMemory:
    """What a cell took."""

    def __init__(self, section: Section, measure: Measure, phases: list[Phase], why: str | None):
        self.measure, self.phases, self.why_no_children = measure, phases, why
        self.peak = section.peak

    def lines(self) -> list[str]:
        """The figures as sentences."""
        measure, peak = self.measure, self.peak
        bound = f" (± {shown(measure.error_bytes)})" if measure.error_bytes else ""
        told = f"peak {shown(peak.bytes)}{bound}, {shown(measure.rise_bytes)} above the start"
        if peak.bytes is None:
            told = f"peak {shown(peak.at_most_bytes)} at most: the kernel's mark could not be reset"
        lines = [
            f"{told}; {shown(measure.stayed_bytes)} stayed; {peak.seconds or 0:.3g} s",
            *(
                f"cuda:{one.device}: peak {shown(one.allocated_bytes)} of tensors, "
                f"{shown(one.reserved_bytes)} reserved"
                for one in peak.gpu or ()
            ),
        ]
        if measure.children_bytes:
            lines.append(f"children held up to {shown(measure.children_bytes)} together")
        elif measure.children_bytes is None:
            lines.append(f"children are not counted: {self.why_no_children}")
        return lines

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The phases: name, duration, change of RSS, peak."""
        return [
            (
                "  " * one.depth + one.name,
                f"{one.seconds:.3g} s",
                shown(one.change_bytes),
                "" if one.peak_bytes is None else shown(one.peak_bytes),
            )
            for one in self.phases
        ]

    def __repr__(self) -> str:
        rows = [_HEAD, *self.rows()] if self.phases else []
        width = max((len(row[0]) for row in rows), default=0)
        table = [
            f"{name:<{width}}{''.join(f'{cell:>12}' for cell in rest)}" for name, *rest in rows
        ]
        return "\n".join([*self.lines(), *(row.rstrip() for row in table)])

    def _repr_html_(self) -> str:
        lines = "<br>".join(map(html.escape, self.lines()))
        if not self.phases:
            return f"<p>{lines}</p>"
        rows = "".join(
            f"<tr><td style='text-align:left;white-space:pre'>{html.escape(name)}</td>"
            f"{''.join(f'<td>{cell}</td>' for cell in rest)}</tr>"
            for name, *rest in self.rows()
        )
        head = "".join(f"<th>{name}</th>" for name in _HEAD)
        return f"<p>{lines}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


_HEAD = ("phase", "time", "RSS changed", "peak")


class _CellFailedError(Exception):
    """Ends a run of all cells. IPython has shown the error of the cell itself already."""

    def _render_traceback_(self) -> list[str]:
        return []


def add_magic(shell: Any) -> None:
    """Registers ``%%memtrace`` with IPython."""
    from IPython.display import display

    def run(line: str, cell: str) -> None:
        """Runs the cell and shows its exact peak, what stays after it, and its phases.

        ``%%memtrace NAME`` names the cell in a recording.
        """
        sampler = _children.Sampler()
        behind = _recorder.active
        section = Section(line.strip() or "cell", sampler, is_exact=True)
        listener = _Listener(behind)
        try:
            with section:
                _recorder.active = listener
                try:
                    result = shell.run_cell(cell)
                finally:
                    _recorder.active = behind
        finally:
            sampler.close()
        phases = [one for one in listener.phases if one is not None]
        display(CellMemory(section, section.measure(), phases, sampler.reason))  # type: ignore[no-untyped-call]
        if not result.success:
            raise _CellFailedError

    shell.register_magic_function(run, "cell", "memtrace")
