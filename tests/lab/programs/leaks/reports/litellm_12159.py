"""BerriAI/litellm#12159: metrics are labelled with users and keys, and a metric keeps a child for
each combination of labels."""

import threading
import time


class Child:
    def __init__(self, labels, buckets):
        self.labels = labels
        self.buckets = [[bound, 0.0] for bound in buckets]  # LEAK

    def observe(self, value):
        for bucket in self.buckets:
            if value <= bucket[0]:
                bucket[1] += 1


BUCKETS = [0.005 * number for number in range(1, 21)]


class Histogram:
    def __init__(self, names):
        self.names, self.children, self.lock = names, {}, threading.Lock()

    def labels(self, *values):
        with self.lock:
            if values not in self.children:
                self.children[values] = Child(values, BUCKETS)
            return self.children[values]


latency = Histogram(("user", "key", "model"))


def log_success(step, number):
    latency.labels(f"user-{step}", f"key-{number}", "model").observe(0.05)


def expose():
    return "\n".join(f"{labels} {len(child.buckets)}" for labels, child in latency.children.items())


for step in range(300):
    for number in range(80):
        log_success(step, number)
    if step % 100 == 99:
        expose()
    time.sleep(0.008)
time.sleep(2)
