"""A training loop in small: data workers, then steps of rollout and update."""

import mmap
import subprocess
import sys
import time

import memtrace

MIB = 1 << 20


def hold(mebibytes: int) -> mmap.mmap:
    memory = mmap.mmap(-1, mebibytes * MIB, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(memory), mmap.PAGESIZE):
        memory[offset] = 1
    return memory


def worker(mebibytes: int, seconds: float) -> None:
    held = hold(mebibytes)
    time.sleep(seconds)
    held.close()


if len(sys.argv) > 1:
    worker(int(sys.argv[1]), float(sys.argv[2]))
    sys.exit()

with memtrace.peak("load_model"):
    staging = hold(120)
    time.sleep(0.3)
    model = hold(80)
    staging.close()
    time.sleep(0.3)
kept = []
for step in range(3):
    memtrace.mark("step", n=step)
    with memtrace.phase(f"step_{step}_rollout", step=step):
        command = [sys.executable, "-S", __file__]
        helpers = [subprocess.Popen([*command, str(size), "0.4"]) for size in (60, 30)]
        kept.append(hold(10))
        for helper in helpers:
            helper.wait()
    with memtrace.phase(f"step_{step}_update", step=step):
        batch = hold(40)
        time.sleep(0.3)
        batch.close()
    time.sleep(0.1)
