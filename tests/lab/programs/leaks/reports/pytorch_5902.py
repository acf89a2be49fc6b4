"""pytorch/pytorch#5902: workers that are forked read a data set of many objects. Each read counts
references, so that each worker gets a copy of every page."""

import multiprocessing
import time


class Samples:
    def __init__(self):
        self.names = [f"sample {number} " + "x" * 150 for number in range(300_000)]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return self.names[index]  # LEAK


def work(samples, begin):
    kinds = set()
    for index in range(begin, len(samples)):
        name = samples[index]
        kinds.add(name[:6])
        if index % 1_500 == 0:
            time.sleep(0.02)
    time.sleep(2)


context = multiprocessing.get_context("fork")
samples = Samples()
workers = [context.Process(target=work, args=(samples, begin)) for begin in range(2)]
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
