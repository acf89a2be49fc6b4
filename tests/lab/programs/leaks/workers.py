"""Worker processes of a loader: each keeps the samples that it has read."""

import multiprocessing
import time


class Samples:
    def __init__(self):
        self.read = {}

    def __getitem__(self, index):
        self.read[index] = [float(number) for number in range(8_000)]  # LEAK
        return sum(self.read[index])


def work(samples, asked, answers):
    for index in iter(asked.get, None):
        answers.put(samples[index])
    time.sleep(2)


context = multiprocessing.get_context("fork")
asked, answers = context.Queue(), context.Queue()
workers = [context.Process(target=work, args=(Samples(), asked, answers)) for _ in range(2)]
for worker in workers:
    worker.start()
for index in range(600):
    asked.put(index)
    answers.get()
    time.sleep(0.004)
for _ in workers:
    asked.put(None)
for worker in workers:
    worker.join()
