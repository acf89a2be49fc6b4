"""`shared_workers.py fork|spawn`: three workers map what their parent put into shared memory, and
take some of their own, as those of a data loader do."""

from __future__ import annotations

import multiprocessing
import sys
import time
from multiprocessing import shared_memory

MIB = 1 << 20
PAGE = 4096
SHARED, INHERITED, OWN = 192 * MIB, 64 * MIB, 96 * MIB
HOLD_S = 4


def touch(memory: bytearray | memoryview) -> None:
    """Writes to every page."""
    for offset in range(0, len(memory), PAGE):
        memory[offset] = 1


def work(name: str) -> None:
    """One worker."""
    shared = shared_memory.SharedMemory(name=name)
    sum(shared.buf[offset] for offset in range(0, SHARED, PAGE))
    own = bytearray(OWN)
    touch(own)
    time.sleep(HOLD_S)
    shared.close()


def main() -> None:
    shared = shared_memory.SharedMemory(create=True, size=SHARED)
    touch(shared.buf)
    inherited = bytearray(INHERITED)
    touch(inherited)
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=work, args=(shared.name,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    shared.close()
    shared.unlink()


if __name__ == "__main__":
    main()
