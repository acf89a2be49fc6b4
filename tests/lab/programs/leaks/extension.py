"""A C extension that keeps what it was called with. Its library is the first argument."""

import ctypes
import sys
import time

library = ctypes.CDLL(sys.argv[1])


def keep(step):
    library.keep(step)  # LEAK


def scratch(step):
    library.scratch(step)


for step in range(250):
    keep(step)
    scratch(step)
    time.sleep(0.01)
time.sleep(2)
