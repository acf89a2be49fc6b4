"""A program whose torch is this file: it holds two segments, of the shape that torch 2.11 gives them
(THCPModule_memorySnapshot of torch/csrc/cuda/Module.cpp), and writes them in every way."""

import pickle
import sys
import time
import types

FRAME = {"name": "load", "filename": "/w/train.py", "line": 7}


def segment(address):
    used = {
        "address": address,
        "size": 3 << 20,
        "requested_size": 3_000_000,
        "state": "active_allocated",
        "frames": [FRAME],
    }
    free = {
        "address": address + (3 << 20),
        "size": 1 << 20,
        "requested_size": 0,
        "state": "inactive",
        "frames": [],
    }
    return {
        "device": 0,
        "address": address,
        "total_size": 4 << 20,
        "allocated_size": 3 << 20,
        "active_size": 3 << 20,
        "requested_size": 3_000_000,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [used, free],
    }


def segments(include_traces=True):
    return [segment(1 << 46), segment((1 << 46) + (4 << 20))]


torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True, device_count=lambda: 0, memory_snapshot=segments
)
sys.modules["torch"] = torch

import memtrace  # noqa: E402

time.sleep(0.3)
memtrace.torch_snapshot("marked.pickle")
trace = {"action": "alloc", "addr": 1 << 46, "size": 3 << 20, "stream": 0, "frames": [FRAME]}
dumped = {
    "segments": segments(),
    "device_traces": [[trace] * 3],
    "allocator_settings": {"expandable_segments": False},
    "external_annotations": [],
}
for protocol in 2, 3, 4, 5:
    with open(f"dumped-{protocol}.pickle", "wb") as file:
        pickle.dump(dumped, file, protocol)
with open("one-segment.pickle", "wb") as file:
    pickle.dump({**dumped, "segments": [segment(1)]}, file)
with open("empty.pickle", "wb") as file:
    pickle.dump({**dumped, "segments": []}, file)
with open("object.pickle", "wb") as file:
    pickle.dump({"segments": [time.sleep]}, file)
time.sleep(0.3)
