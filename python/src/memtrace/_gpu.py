"""What torch's allocators hold, and their peaks. Never imports torch, never initialises CUDA."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple


class GpuPeak(NamedTuple):
    """The peak of one visible CUDA device, as torch's caching allocator counts it."""

    device: int
    allocated_bytes: int
    """Highest sum of the tensors' memory."""
    reserved_bytes: int
    """Highest memory that the allocator took from the device."""


# By attribute, what the allocator calls it.
_CUDA_KINDS = (
    ("torch_cuda_alloc_bytes", "allocated_bytes"),
    ("torch_cuda_reserved_bytes", "reserved_bytes"),
)

# By device: allocated and reserved.
Peaks = dict[int, tuple[int, int]]


def is_in_use() -> bool:
    """Whether this process has CUDA initialised through torch."""
    return cuda_in_use() is not None


def peaks() -> Peaks | None:
    """The highest figures since they were reset: none for no CUDA, None for unknown."""
    cuda = cuda_in_use()
    if cuda is None:
        return {}
    try:
        return {
            device: (
                int(cuda.max_memory_allocated(device)),
                int(cuda.max_memory_reserved(device)),
            )
            for device in range(cuda.device_count())
        }
    except Exception:
        return None


def reset() -> bool:
    """Lets the figures of every device start again at what is in use."""
    cuda = cuda_in_use()
    if cuda is None:
        return True
    try:
        for device in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(device)
    except Exception:
        return False
    return True


def synchronize() -> None:
    """Waits for the devices on which the allocator has memory to end their work."""
    cuda = cuda_in_use()
    try:
        if cuda is None or cuda.is_current_stream_capturing():
            return
        for device, (_, reserved) in (peaks() or {}).items():
            # Another device would get a context.
            if reserved:
                cuda.synchronize(device)
    except Exception:
        # What failed on a device is the program's to meet.
        pass


def most_risen(peaks: Iterable[GpuPeak], begin: Peaks) -> GpuPeak | None:
    """The device whose tensors rose most above what they took; None where none rose."""

    def rise(peak: GpuPeak) -> int:
        return peak.allocated_bytes - begin.get(peak.device, (0, 0))[0]

    highest = max(peaks, key=rise, default=None)
    return highest if highest is not None and rise(highest) > 0 else None


def attributes() -> dict[str, int]:
    """What torch's allocators hold now, all devices together, as attributes of a mark.

    Tensors, and what the allocator took from the devices for them; none for a device that is
    not in use, or could not be asked.
    """
    held: dict[str, int] = {}
    cuda = cuda_in_use()
    try:
        if cuda is not None:
            # `memory_allocated` and `memory_reserved` would each read all of this.
            stats = [cuda.memory_stats_as_nested_dict(d) for d in range(cuda.device_count())]
            for attribute, kind in _CUDA_KINDS:
                held[attribute] = sum(int(one[kind]["all"]["current"]) for one in stats if one)
    except Exception:
        held = {}
    mps = _mps()
    try:
        if mps is not None and (driver := int(mps.driver_allocated_memory())):
            held["torch_mps_alloc_bytes"] = int(mps.current_allocated_memory())
            held["torch_mps_driver_bytes"] = driver
    except Exception:
        # torch is being imported right now, or is too old to tell.
        pass
    return held


def fold(into: Peaks, seen: Peaks) -> None:
    """Keeps the higher figure of each device."""
    for device, (allocated, reserved) in seen.items():
        known = into.get(device, (0, 0))
        into[device] = (max(known[0], allocated), max(known[1], reserved))


def cuda_in_use() -> Any:
    """`torch.cuda`, if this process has CUDA initialised through torch; else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda if cuda is not None and cuda.is_initialized() else None
    except Exception:
        # torch is being imported right now.
        return None


def _mps() -> Any:
    torch = sys.modules.get("torch")
    try:
        return torch.mps if torch is not None and torch.backends.mps.is_available() else None
    except Exception:
        return None
