"""The memory of the arrays that an object holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memtrace import _arrays

MIB = 1 << 20


class Device(NamedTuple):
    type: str
    number: int = 0

    def __str__(self) -> str:
        return f"{self.type}:{self.number}"


class Storage:
    def __init__(self, start: int, count: int, device: Device) -> None:
        self._start, self._count, self.device = start, count, device

    def data_ptr(self) -> int:
        return self._start

    def nbytes(self) -> int:
        return self._count


class Tensor:
    """As torch's, as far as it is asked."""

    def __init__(self, start: int, count: int, device: str = "cpu", number: int = 0) -> None:
        self.storage = Storage(start, count, Device(device, number))

    def untyped_storage(self) -> Storage:
        return self.storage


class Fake(Tensor):
    def untyped_storage(self) -> Storage:
        raise NotImplementedError("no storage")


class Buffer:
    """A pair of tensors and a view, as vLLM's CpuGpuBuffer."""

    def __init__(self, count: int) -> None:
        self.np = np.zeros(count, dtype=np.int8)
        start = self.np.__array_interface__["data"][0]
        self.cpu, self.gpu = Tensor(start, count), Tensor(1 << 40, count, "cuda")


class Batch:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


def test_arrays_count_by_the_attribute_and_memory_that_two_look_at_counts_once() -> None:
    tokens = np.zeros(MIB, dtype=np.int64)
    batch = Batch(
        tokens=tokens,
        view=tokens[:10],
        positions=Buffer(3 * MIB),
        weights=Tensor(1 << 50, MIB),
        again=Tensor(1 << 50, MIB),
        fake=Fake(5, 1),
        names=["a"],
        count=7,
    )
    assert _arrays.attributes(batch) == {
        "arrays_bytes": (8 + 3 + 1) * MIB,
        "arrays_gpu_bytes": 3 * MIB,
        "arrays": "tokens 8.0 MiB, positions 6.0 MiB, weights 1.0 MiB",
    }


def whole() -> Any:
    return np.zeros(MIB, dtype=np.int64)


def counted(**attributes: Any) -> Any:
    return _arrays.attributes(Batch(**attributes)).get("arrays_bytes")


def test_a_view_counts_as_all_that_it_keeps_whatever_comes_first() -> None:
    a, b, c = whole(), whole(), whole()
    assert counted(head=a[:10], whole=a) == 8 * MIB
    assert counted(tail=b[5:], all=b[:]) == 8 * MIB
    assert counted(only=c[5:][::2].reshape(-1, 2)) == 8 * MIB
    assert counted(one=a[:1], other=b[:1]) == 16 * MIB


def test_memory_of_two_frameworks_counts_once_where_only_parts_are_the_same() -> None:
    a = whole()
    start = a.__array_interface__["data"][0]
    assert counted(part=Tensor(start + 40, MIB), whole=a) == 8 * MIB
    assert counted(whole=a, beyond=Tensor(start + 7 * MIB, 2 * MIB)) == 9 * MIB


def test_what_is_repeated_in_an_array_counts_as_what_there_is() -> None:
    repeated = np.broadcast_to(np.zeros(1), (1 << 30,))
    assert repeated.nbytes == 8 << 30
    assert counted(repeated=repeated) == 8
    windows = np.lib.stride_tricks.sliding_window_view(np.zeros(100), 50)
    assert counted(windows=windows) == 800


def test_a_tensor_with_nothing_behind_it_does_not_count() -> None:
    assert counted(meta=Tensor(0, MIB, "meta"), one=Tensor(1 << 50, 5)) == 5


def test_a_mapped_file_does_not_count(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "file", dtype=np.int8, mode="w+", shape=(MIB,))
    assert counted(mapped=mapped, view=mapped[5:], array=np.asarray(mapped)) is None


def test_gpus_are_told_apart_from_the_host_and_from_each_other() -> None:
    at = 1 << 40
    same = [Tensor(at, MIB, "cuda", 0), Tensor(at, MIB, "cuda", 1), Tensor(at, MIB, "cuda", 1)]
    batch = Batch(**{f"t{number}": tensor for number, tensor in enumerate(same)})
    assert _arrays.attributes(batch) == {
        "arrays_gpu_bytes": 2 * MIB,
        "arrays": "t0 1.0 MiB, t1 1.0 MiB",
    }


def test_only_buffers_that_are_arrays_throughout_are_followed() -> None:
    runner = Batch(kv_cache=whole(), name="runner")
    batch = Batch(runner=runner, ids=np.zeros(5, dtype=np.int8), pair=Batch(a=whole(), b=whole()))
    runner.__dict__["batch"] = batch
    assert counted(**batch.__dict__) == 16 * MIB + 5


def test_names_that_are_no_text_and_attributes_that_come_while_asked_change_nothing() -> None:
    batch = Batch(one=np.zeros(5, dtype=np.int8))
    numbered: dict[Any, Any] = batch.__dict__
    numbered[7] = np.zeros(5, dtype=np.int8)

    class Growing(Tensor):
        def untyped_storage(self) -> Storage:
            numbered[f"new {len(numbered)}"] = 1
            return super().untyped_storage()

    numbered["growing"] = Growing(1 << 50, 1)
    assert _arrays.attributes(batch)["arrays_bytes"] == 11


def test_a_chain_of_bases_without_end_has_one() -> None:
    class Endless:
        def __init__(self) -> None:
            self.array = np.zeros(5, dtype=np.int8)
            self.__array_interface__ = self.array.__array_interface__

        @property
        def base(self) -> Any:
            return self

    assert counted(endless=np.asarray(Endless())) == 5


def test_an_object_without_arrays_tells_nothing() -> None:
    class Slotted:
        __slots__ = ("size",)

    class Anything:
        def __getattr__(self, name: str) -> int:
            return 5

    for owner in (Batch(n=1), Slotted(), Anything(), Batch(other=Anything())):
        assert _arrays.attributes(owner) == {}
