"""Anonymous mappings that stay open."""

import mmap
import time

ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
kept = []


def fill(step):
    pages = mmap.mmap(-1, 512 << 10, flags=ANONYMOUS)
    pages.write(step.to_bytes(4, "little") * (128 << 10))  # LEAK
    return pages


for step in range(200):
    kept.append(fill(step))
    fill(step).close()
    time.sleep(0.015)
time.sleep(2)
