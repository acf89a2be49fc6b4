"""As much of torch as torch_workload.py uses: so that the script itself is known to run where
there is no GPU. A tensor has its size and a few of its numbers; nothing is pinned."""

from . import cuda, multiprocessing

__all__ = ["cuda", "multiprocessing", "ones", "zeros"]

ITEM_BYTES = 4


class Tensor:
    def __init__(self, value, count, device):
        self.value, self.count = value, count
        if device == "cuda":
            cuda.reserved += ITEM_BYTES * count

    def __getitem__(self, place):
        return Tensor(self.value, len(range(*place.indices(self.count))), "cpu")

    def numel(self):
        return self.count

    def pin_memory(self):
        return self

    def sum(self):
        return self.value * self.count


def ones(count, device="cpu"):
    return Tensor(1.0, count, device)


def zeros(count, device="cpu"):
    return Tensor(0.0, count, device)
