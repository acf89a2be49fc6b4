"""The memory of the arrays that an object holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from memtrace import _arrays


class Storage:
    def __init__(self, start: int, count: int) -> None:
        self._start, self._count = start, count

    def data_ptr(self) -> int:
        return self._start

    def nbytes(self) -> int:
        return self._count


class Tensor:
    """As torch's, as far as it is asked."""

    def __init__(self, start: int, count: int) -> None:
        self.storage = Storage(start, count)

    def untyped_storage(self) -> Storage:
        return self.storage


class Fake(Tensor):
    def untyped_storage(self) -> Storage:
        raise NotImplementedError("no storage")


class Buffer:
    """A pair of tensors and a view, as vLLM's CpuGpuBuffer."""

    def __init__(self, start: int, count: int) -> None:
        self.cpu, self.gpu = Tensor(start, count), Tensor(start + count, count)


class Batch:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_arrays_count_by_the_attribute_and_memory_that_two_look_at_counts_once() -> None:
    tokens = np.zeros(1 << 20, dtype=np.int64)
    batch = Batch(
        tokens=tokens,
        view=tokens[:10],
        positions=Buffer(64, 3 << 20),
        weights=Tensor(1 << 40, 1 << 20),
        again=Tensor(1 << 40, 1 << 20),
        fake=Fake(5, 1),
        names=["a"],
        count=7,
    )
    assert _arrays.attributes(batch) == {
        "arrays_bytes": (8 + 6 + 1) << 20,
        "arrays": "tokens 8.0 MiB, positions 6.0 MiB, weights 1.0 MiB",
    }


def test_an_object_without_arrays_tells_nothing() -> None:
    class Slotted:
        __slots__ = ("size",)

    class Anything:
        def __getattr__(self, name: str) -> int:
            return 5

    for owner in (Batch(n=1), Slotted(), Anything(), Batch(other=Anything())):
        assert _arrays.attributes(owner) == {}
