"""A dictionary as a cache without a bound."""

import time

CACHE = {}


def answer(question):
    if question not in CACHE:
        CACHE[question] = [number * 2.5 for number in range(10_000)]  # LEAK
    return CACHE[question]


def scratch():
    return sum(number * 1.5 for number in range(20_000))


for step in range(250):
    answer(f"question {step}")
    scratch()
    time.sleep(0.01)
time.sleep(2)
