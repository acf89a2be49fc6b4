"""Marks and phases."""

from __future__ import annotations

import gc
import itertools
import os
from typing import Any, TypeVar

from . import _gpu, _heap, _host, _recorder
from ._wrap import F, wrapped

_spans = itertools.count(1)

P = TypeVar("P", bound="phase")


def mark(name: str, /, **attrs: Any) -> None:
    """Names this moment in the recording.

    Does nothing when no recorder runs. Never raises and never waits: a mark that the
    recorder cannot take at once is dropped, and the next one says how many were.
    Attributes are kept as JSON; what JSON does not know is kept as its repr, and long
    values are cut. The mark tells too what the process had then, as a phase does.
    """
    recorder = _recorder.active
    if recorder is not None:
        boot = _recorder.boot_ns()
        recorder.tell("instant", name, boot, None, with_held(attrs, held()))


def is_recording() -> bool:
    """Whether marks go anywhere, for a caller whose attributes are costly to compute."""
    return _recorder.active is not None


class phase:
    """A named stretch of time: ``with memtrace.phase("load_model"):`` or a decorator.

    Phases may nest, overlap, and run in any thread or task; each is told apart. As a
    decorator it works on functions, coroutines and generators. A phase that ends by an
    exception says so in its attribute `error`. Both marks tell what the process had
    resident then, as `rss_bytes` and `rss_anon_bytes`, and its address space, as
    `vm_size_bytes`, where the kernel says so; what tracemalloc counts, where it is on
    (`python_heap_bytes`); and what torch holds on GPUs (`torch_cuda_alloc_bytes` and the
    like), where it uses them. With ``MEMTRACE_GC=1`` in the environment garbage is
    collected before each reading.
    """

    __slots__ = ("_attrs", "_end_attrs", "_name", "_open")

    def __init__(self, name: str, /, **attrs: Any) -> None:
        self._name = name
        self._attrs = attrs
        self._end_attrs: dict[str, Any] | None = None
        # Begins that have no end yet, with the process they were sent by.
        self._open: list[tuple[int, int]] | None = None

    def set(self, **attrs: Any) -> None:
        """Adds attributes that are told when the phase ends."""
        self._end_attrs = {**(self._end_attrs or {}), **attrs}

    def __enter__(self: P) -> P:
        recorder = _recorder.active
        if recorder is not None:
            if self._open is None:
                self._open = []
            span = next(_spans)
            self._open.append((span, os.getpid()))
            collect()
            self._tell(recorder, "begin", _recorder.boot_ns(), span, self._at_begin())
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if not self._open:
            return
        span, pid = self._open.pop()
        recorder = _recorder.active
        # A child that was forked inside the phase did not begin it.
        if recorder is not None and pid == os.getpid():
            collect()
            boot = _recorder.boot_ns()
            attrs = with_held(self._end_attrs or {}, self._at_end())
            if kind is not None and kind is not GeneratorExit:
                attrs["error"] = kind.__qualname__
            self._tell(recorder, "end", boot, span, attrs)

    def __call__(self, function: F) -> F:
        return wrapped(function, self._again)

    def _again(self) -> phase:
        """A phase like this one for another call."""
        return type(self)(self._name, **self._attrs)

    def _tell(
        self, recorder: _recorder.Recorder, kind: str, boot: int, span: int, attrs: dict[str, Any]
    ) -> None:
        recorder.tell(kind, self._name, boot, span, attrs)

    def _at_begin(self) -> dict[str, Any]:
        return with_held(self._attrs, held())

    def _at_end(self) -> dict[str, Any]:
        return held()


# Whether garbage is collected before each reading, so that what is read is held.
_collects = os.environ.get("MEMTRACE_GC", "") not in ("", "0")


def collect() -> None:
    """Collects garbage, where MEMTRACE_GC asks for it before each reading."""
    if _collects:
        gc.collect()


def with_held(attrs: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Attributes with what is held first, which is not cut then, and by no other value."""
    return {**then, **attrs, **then}


def held() -> dict[str, Any]:
    """What the kernel and the allocators inside say that this process holds, as attributes: the
    recorder's newest row may be older."""
    told: dict[str, Any] = {**_heap.attributes(), **_gpu.attributes()}
    resident = _host.resident()
    if resident is not None:
        told[_host.RSS_ATTRIBUTE] = resident.rss_bytes
        told[_host.ANON_ATTRIBUTE] = resident.anon_bytes
        told[_host.VM_SIZE_ATTRIBUTE] = resident.vm_size_bytes
    return told
