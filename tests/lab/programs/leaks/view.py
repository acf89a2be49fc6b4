"""A view of one number keeps the whole array."""

import sys
import time

import numpy

# What a step frees again, as a part of what it keeps.
BESIDE = float(sys.argv[1])
first = []


def take(step):
    whole = numpy.full((200, 220), float(step))  # LEAK
    first.append(whole[:1, 0])


def scratch(step):
    return numpy.full((200, int(220 * BESIDE)), float(step)).sum()


for step in range(250):
    take(step)
    scratch(step)
    time.sleep(0.01)
time.sleep(2)
