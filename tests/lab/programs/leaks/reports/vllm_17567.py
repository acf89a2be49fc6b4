"""vllm-project/vllm#17567: request data goes back to a pool by request after the request was freed,
so that each finished one leaves a pool behind."""

import time
from collections import defaultdict, deque


class CachedRequestData:
    def __init__(self, request, token_ids):
        self.request, self.token_ids = request, list(token_ids)  # LEAK


class Scheduler:
    def __init__(self):
        self.running = {}
        self.pool = defaultdict(deque)

    def schedule(self):
        return [self.cached_data(request, length) for request, length in self.running.items()]

    def cached_data(self, request, length):
        if self.pool[request]:
            return self.pool[request].popleft()
        return CachedRequestData(request, range(1000, 1000 + length))

    def update_from_output(self, scheduled):
        for data in scheduled:
            if len(data.token_ids) % 2:
                del self.running[data.request]
                del self.pool[data.request]
            # Also of those that are no longer there.
            self.pool[data.request].append(data)


scheduler = Scheduler()
for step in range(300):
    scheduler.running.update({f"{step}-{number}": 801 for number in range(8)})
    scheduler.update_from_output(scheduler.schedule())
    logits = [[step * 0.5] * 100 for _ in range(200)]
    time.sleep(0.01)
time.sleep(2)
