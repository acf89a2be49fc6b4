"""A workload of known GPU memory: each process says what torch holds of it, then waits.

context    nothing but a context, and the smallest allocation there is
tensor     1 GiB on the GPU, 512 MiB pinned on the host
ipc        the tensor of the one before, by CUDA IPC
killed     512 MiB, until it is killed with SIGKILL
brief      256 MiB for half a second

One JSON line for each on stdout. `kill` on stdin kills, the end of stdin ends.
"""

import json
import os
import signal
import sys
import time

import torch
import torch.multiprocessing as mp

MIB = 1 << 20


def tell(role, **more):
    torch.cuda.synchronize()
    line = {"role": role, "pid": os.getpid(), "reserved_bytes": torch.cuda.memory_reserved(), **more}
    os.write(1, (json.dumps(line) + "\n").encode())


def context(done):
    small = torch.zeros(1, device="cuda")
    tell("context")
    done.wait()
    del small


def tensor(queue, done):
    held = torch.ones(1024 * MIB // 4, device="cuda")
    pinned = torch.ones(512 * MIB // 4).pin_memory()
    queue.put(held)
    tell("tensor", pinned_bytes=pinned.numel() * 4)
    done.wait()


def ipc(queue, done):
    shared = queue.get()
    total = float(shared[:4].sum())
    tell("ipc", sum=total)
    done.wait()
    del shared


def killed():
    held = torch.ones(512 * MIB // 4, device="cuda")
    tell("killed")
    # Not the event: whoever sets it waits for everybody who waits for it.
    while held is not None:
        time.sleep(1)


def brief():
    held = torch.ones(256 * MIB // 4, device="cuda")
    tell("brief")
    time.sleep(0.5)
    del held


def main():
    if not torch.cuda.is_available():
        sys.exit("torch finds no GPU")
    mp.set_start_method("spawn")
    queue, done = mp.Queue(), mp.Event()
    victim = mp.Process(target=killed)
    others = [
        mp.Process(target=context, args=(done,)),
        mp.Process(target=tensor, args=(queue, done)),
        mp.Process(target=ipc, args=(queue, done)),
        mp.Process(target=brief),
        victim,
    ]
    for process in others:
        process.start()
    for line in sys.stdin:
        if line.strip() == "kill":
            os.kill(victim.pid, signal.SIGKILL)
    victim.kill()
    done.set()
    for process in others:
        process.join()


if __name__ == "__main__":
    main()
