"""A list that a class keeps, beside a function that keeps nothing."""

import sys
import time

# What a step frees again, as a part of what it keeps.
BESIDE = float(sys.argv[1])


class Log:
    def __init__(self):
        self.lines = []

    def update(self, step):
        self.lines.extend([f"{step} {number} " + "x" * 900 for number in range(300)])  # LEAK


def scratch():
    return len([f"{number} " + "x" * 900 for number in range(int(300 * BESIDE))])


log = Log()
for step in range(250):
    log.update(step)
    scratch()
    time.sleep(0.012)
time.sleep(2)
