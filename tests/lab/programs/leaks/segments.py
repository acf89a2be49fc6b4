"""Segments of shared memory that nobody unlinks before the end."""

import time
from multiprocessing import shared_memory

kept = []


def publish(step):
    segment = shared_memory.SharedMemory(create=True, size=512 << 10)
    segment.buf[:] = bytes([step]) * (512 << 10)  # LEAK
    kept.append(segment)


for step in range(200):
    publish(step)
    time.sleep(0.015)
time.sleep(2)
for segment in kept:
    segment.close()
    segment.unlink()
