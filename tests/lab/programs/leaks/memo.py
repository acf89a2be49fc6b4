"""`lru_cache` without a bound: what a function answers stays."""

import functools
import sys
import time

# What a step frees again, as a part of what it keeps.
BESIDE = float(sys.argv[1])


@functools.lru_cache(maxsize=None)  # noqa: UP033
def embedding(token):
    return bytearray(token.to_bytes(4, "little") * 80_000)  # LEAK


def scratch():
    return len(bytearray(int(320_000 * BESIDE)))


for step in range(250):
    embedding(step)
    scratch()
    time.sleep(0.01)
time.sleep(2)
