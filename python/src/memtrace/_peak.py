"""The exact peak of a section, from the kernel's own high-water mark.

There is one mark per process, and a section begins by resetting it. So whoever resets it
first gives what it stood at to all sections that are open, in whatever thread: their peak
is the highest of what they were given and of what the mark says at their end. And it is
told to the recorder, for which the mark would otherwise have forgotten the process's peak.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, TypeVar, cast

from . import _descendants, _gpu, _host, _recorder
from ._marks import collect, phase
from ._sizes import shown
from ._wrap import F, wrapped

P = TypeVar("P", bound="peak")

_lock = threading.RLock()
_open: list[peak] = []
# The highest mark that the recorder should know and does not yet.
_untold_bytes = 0


class _Section(phase):
    """The phase of a peak, about whose descendants the recorder may be asked."""

    __slots__ = ("recorder", "span", "was_told")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.recorder: _recorder.Recorder | None = None
        self.span = 0
        self.was_told = False

    def _tell(
        self, recorder: _recorder.Recorder, kind: str, boot: int, span: int, attrs: dict[str, Any]
    ) -> None:
        is_begin = kind == "begin"
        was_told = recorder.tell(kind, self._name, boot, span, attrs, asks=is_begin)
        self.was_told = was_told and (is_begin or self.was_told)
        self.recorder, self.span = recorder, span


class peak:
    """Measures the peak memory of a section: ``with memtrace.peak() as p: ...; p.bytes``.

    As a decorator, ``@memtrace.peak()`` measures each call of a function, coroutine or
    generator, whether somebody records or not. A call gives what the function gives; the
    measure of the call that ended last is the function's attribute `peak`::

        @memtrace.peak()
        def prefill(batch): ...

        logits = prefill(batch)
        print(prefill.peak.bytes, prefill.peak.seconds, prefill.peak.error_bytes)

    Put it above other decorators: it is the outermost function that has the attribute. A
    measure that has ended can be pickled; its copy has the figures alone.

    When the section has ended:

    - `bytes` is the highest RSS of this process in the section; None when unknown.
    - `source` says where it is from: ``vm_hwm`` (the kernel's mark, reset at the begin;
      exact), ``vm_hwm_rise`` or ``ru_maxrss_rise`` (a mark of the process's whole life
      that could not be reset: known only if it rose in the section).
    - `at_most_bytes` is what the highest RSS did not exceed, also where the mark could not be
      reset and did not rise, so that `bytes` is None.
    - `error_bytes` is how far `bytes` can be from the truth, since Linux 6.2 keeps RSS in
      parts by CPU: 3 counters x CPUs x max(32, 2 x CPUs) pages. None when unknown.
    - `seconds` is how long the section took, on the monotonic clock.
    - `begin_bytes` and `end_bytes` are RSS at both ends, `begin_anon_bytes` and `end_anon_bytes`
      the anonymous memory in it; None when unknown.
    - `gpu` has each visible CUDA device's peak if torch uses CUDA in this process; None
      when it could not be asked.
    - `peak_memory_bytes` is the one figure for a log: the peak of the device whose tensors rose
      most in the section, or where none rose, of the host. `peak_memory_of` says which
      (``cuda:0``, ``host``), and `peak_memory_error_bytes` how far it can be from the truth. On
      the host it is `at_most_bytes` where `bytes` is None.
    - `child_peak_bytes` is the highest sum of RSS of all descendants in the section, from
      the recorder; None when unknown. `child_source` says which of its ways the recorder
      knows it by, or why it is unknown. The recorder is asked when one of the two is first
      read, and waited for at most `child_timeout` seconds.

    At its end a section waits for the work on CUDA devices that torch has memory on. In a
    recording it is a phase too. It resets VmHWM, and with it what getrusage
    and other tools say about the past of the process, and torch's peak statistics.
    """

    __slots__ = (
        "_began",
        "_begin_mark",
        "_child_answer",
        "_child_timeout",
        "_gpu_begin",
        "_gpu_high",
        "_high",
        "_is_gpu_reset",
        "_is_named",
        "_is_reset",
        "_name",
        "_phase",
        "_pid",
        "at_most_bytes",
        "begin_anon_bytes",
        "begin_bytes",
        "bytes",
        "end_anon_bytes",
        "end_bytes",
        "error_bytes",
        "gpu",
        "peak_memory_bytes",
        "peak_memory_error_bytes",
        "peak_memory_of",
        "seconds",
        "source",
    )

    def __init__(self, name: str | None = None, *, child_timeout: float = 0.5) -> None:
        if callable(name):
            raise TypeError("as a decorator, peak is called: @memtrace.peak()")
        self._is_named = name is not None
        self._name = "peak" if name is None else name
        self._phase = _Section(self._name)
        self._child_timeout = child_timeout
        self._child_answer: _descendants.Answer | None = _descendants.NOT_ENDED
        self.bytes: int | None = None
        self.at_most_bytes: int | None = None
        self.begin_bytes: int | None = None
        self.end_bytes: int | None = None
        self.begin_anon_bytes: int | None = None
        self.end_anon_bytes: int | None = None
        self.source: str | None = None
        self.error_bytes: int | None = None
        self.seconds: float | None = None
        self._began = 0.0
        self.gpu: tuple[_gpu.GpuPeak, ...] | None = None
        self.peak_memory_bytes: int | None = None
        self.peak_memory_of: str | None = None
        self.peak_memory_error_bytes: int | None = None
        self._pid = 0
        self._high = 0
        self._begin_mark: int | None = None
        self._is_reset = False
        self._gpu_begin: _gpu.Peaks = {}
        self._gpu_high: _gpu.Peaks = {}
        self._is_gpu_reset = False

    def __enter__(self: P) -> P:
        self._phase.recorder = None
        self._phase.__enter__()
        self._pid = os.getpid()
        self._high = 0
        self._gpu_high = {}
        self._child_answer = _descendants.NOT_ENDED
        with _lock:
            self._begin_gpu()
            self._begin_host()
            _open.append(self)
        self._began = time.monotonic()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._pid == os.getpid():
            _gpu.synchronize()
            self.seconds = time.monotonic() - self._began
            collect()
            with _lock:
                if self in _open:
                    _open.remove(self)
                self._end_host()
                self._end_gpu()
                self._choose()
                _tell_untold(self._name)
            if self._phase.recorder is not None:
                self._phase.set(**self._attributes())
            self._child_answer = None
        self._phase.__exit__(kind, *rest)

    def __call__(self, function: F) -> F:
        name = self._name if self._is_named else getattr(function, "__qualname__", self._name)
        measured: Any = wrapped(
            function,
            lambda: _Call(measured, name, child_timeout=self._child_timeout),
            is_always=True,
        )
        measured.peak = None
        return cast(F, measured)

    def __getstate__(self) -> dict[str, Any]:
        figures = {name: getattr(self, name) for name in _FIGURES}
        return {"name": self._name, "children": self._children(), **figures}

    def __setstate__(self, state: dict[str, Any]) -> None:
        peak.__init__(self, state["name"])
        self._child_answer = state["children"]
        for name in _FIGURES:
            setattr(self, name, state[name])

    def __reduce__(self) -> Any:
        return _again, (), self.__getstate__()

    def __repr__(self) -> str:
        if self.seconds is None:
            return f"<peak {self._name}: not ended>"
        peak = shown(self.bytes)
        if self.bytes is None and self.at_most_bytes is not None:
            peak = f"{shown(self.at_most_bytes)} at most"
        bound = f", ± {shown(self.error_bytes)}" if self.error_bytes else ""
        parts = [
            f"{peak} ({self.source}{bound})",
            f"{shown(self.begin_bytes)} at the start and {shown(self.end_bytes)} at the end",
            *(f"cuda:{one.device} {shown(one.allocated_bytes)}" for one in self.gpu or ()),
            f"{self.seconds:.3g} s",
        ]
        return f"<peak {self._name}: {'; '.join(parts)}>"

    @property
    def child_peak_bytes(self) -> int | None:
        """The highest sum of RSS of all descendants in the section; None when unknown.

        Pages that they share count in each of them, so it is an upper bound.
        """
        return self._children().bytes

    @property
    def child_source(self) -> str:
        """Where `child_peak_bytes` is from (``events``, ``poll``), or why it is None."""
        return self._children().source

    def _children(self) -> _descendants.Answer:
        if self._pid not in (0, os.getpid()):
            return _descendants.ELSEWHERE
        if self._child_answer is None:
            self._child_answer = self._ask()
        return self._child_answer

    def _ask(self) -> _descendants.Answer:
        recorder = self._phase.recorder
        if recorder is None:
            return _descendants.NOBODY
        if not self._phase.was_told:
            # A mark that finds nobody at the socket gives the recorder up.
            is_gone = _recorder.active is not recorder
            return _descendants.NOBODY if is_gone else _descendants.NOT_TOLD
        return _descendants.ask(recorder, self._phase.span, self._child_timeout)

    def _begin_host(self) -> None:
        if _open or _recorder.active is not None:
            # Else nobody asks for it: its file is the slowest of all that a section reads.
            mark, _ = _life_mark(_host.memory())
            if mark is not None:
                for section in _open:
                    section._high = max(section._high, mark)
                _tell(self._name, mark)
        self._is_reset = _host.reset_hiwater()
        resident = _host.resident() if self._is_reset else None
        if resident is not None:
            self._begin_mark = None
            self.begin_bytes, self.begin_anon_bytes = resident.rss_bytes, resident.anon_bytes
        else:
            held = _host.memory()
            self._begin_mark, _ = _life_mark(held)
            self.begin_bytes, self.begin_anon_bytes = held.rss_bytes, held.anon_bytes

    def _end_host(self) -> None:
        held = _host.memory()
        mark, self.source = _life_mark(held)
        self.end_bytes, self.end_anon_bytes = held.rss_bytes, held.anon_bytes
        high = max(self._high, mark or 0)
        self.at_most_bytes = high or None
        if self.source == "vm_hwm_rise" and self._is_reset:
            self.source = "vm_hwm"
            self.bytes = high
        elif self._begin_mark is not None and high > self._begin_mark:
            self.bytes = high
        else:
            self.bytes = None
        self.error_bytes = None if self.bytes is None else _host.rss_error_bytes()

    def _begin_gpu(self) -> None:
        if not _gpu.is_in_use():
            self._is_gpu_reset, self._gpu_begin = True, {}
            return
        seen = _gpu.peaks()
        for section in _open:
            if seen is None:
                section._is_gpu_reset = False
            else:
                _gpu.fold(section._gpu_high, seen)
        self._is_gpu_reset = _gpu.reset()
        self._gpu_begin = _gpu.peaks() or {}

    def _end_gpu(self) -> None:
        seen = _gpu.peaks()
        if seen is None or not self._is_gpu_reset:
            self.gpu = None
            return
        _gpu.fold(self._gpu_high, seen)
        self.gpu = tuple(
            _gpu.GpuPeak(device, *figures) for device, figures in sorted(self._gpu_high.items())
        )

    def _choose(self) -> None:
        """The one figure: of the device on which something was done, else of the host."""
        device = _gpu.most_risen(self.gpu or (), self._gpu_begin)
        if device is not None:
            self.peak_memory_of = f"cuda:{device.device}"
            self.peak_memory_bytes, self.peak_memory_error_bytes = device.allocated_bytes, 0
            return
        self.peak_memory_of = "host"
        self.peak_memory_bytes, self.peak_memory_error_bytes = self.bytes, self.error_bytes
        if self.bytes is None and self.at_most_bytes is not None:
            at_least = max(self.begin_bytes or 0, self.end_bytes or 0)
            self.peak_memory_bytes = self.at_most_bytes
            uncertain = max(self.at_most_bytes - at_least, 0)
            self.peak_memory_error_bytes = uncertain + (_host.rss_error_bytes() or 0)

    def _attributes(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {
            "peak_bytes": self.bytes,
            "peak_source": self.source,
            "begin_bytes": self.begin_bytes,
            "end_bytes": self.end_bytes,
        }
        if self.gpu:
            attrs["gpu"] = [device._asdict() for device in self.gpu]
        return attrs


# What a measure keeps when it is pickled.
_FIGURES = (
    "bytes",
    "at_most_bytes",
    "error_bytes",
    "source",
    "seconds",
    "begin_bytes",
    "end_bytes",
    "begin_anon_bytes",
    "end_anon_bytes",
    "gpu",
    "peak_memory_bytes",
    "peak_memory_of",
    "peak_memory_error_bytes",
)


def _again() -> peak:
    return peak()


class _Call(peak):
    """The peak of one call of a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Any, name: str, *, child_timeout: float) -> None:
        super().__init__(name, child_timeout=child_timeout)
        self._function = function

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        super().__exit__(kind, *rest)
        self._function.peak = self


def _life_mark(held: _host.HostMemory) -> tuple[int | None, str | None]:
    """The highest RSS since the mark was last reset, or ever, and where that is from."""
    if held.hiwater_bytes is not None:
        return held.hiwater_bytes, "vm_hwm_rise"
    maximum = _host.maxrss_bytes()
    return maximum, None if maximum is None else "ru_maxrss_rise"


def _tell(name: str, mark: int) -> None:
    """Tells the recorder a mark that is about to be reset; keeps it when that fails."""
    global _untold_bytes
    if _recorder.active is not None:
        _untold_bytes = max(_untold_bytes, mark)
        _tell_untold(name)


def _tell_untold(name: str) -> None:
    global _untold_bytes
    recorder = _recorder.active
    if recorder is None or not _untold_bytes:
        return
    attrs = {"hiwater_bytes": _untold_bytes}
    if recorder.tell("peak", name, _recorder.boot_ns(), attrs=attrs):
        _untold_bytes = 0


def _after_fork_in_child() -> None:
    """The sections of the parent go on in the parent; the child has a mark of its own."""
    global _lock, _untold_bytes
    _lock = threading.RLock()
    _open.clear()
    _untold_bytes = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
