"""Callbacks that close over what they were made with."""

import sys
import time

# What a step frees again, as a part of what it keeps.
BESIDE = float(sys.argv[1])
callbacks = []


def subscribe(step):
    payload = {str(number): (step, number) for number in range(2_500)}  # LEAK
    callbacks.append(lambda: payload)


def scratch(step):
    return len({str(number): (step, number) for number in range(int(2_500 * BESIDE))})


for step in range(250):
    subscribe(step)
    scratch(step)
    time.sleep(0.01)
time.sleep(2)
