"""vllm-project/vllm#13464: the outputs of a step are taken from a cache by its parity. Where each
request ends at once, the same one is taken every time, and never reset."""

import time


class Outputs:
    def __init__(self):
        self.decode_seq_groups, self.blocks = [], []

    def clear(self):
        self.decode_seq_groups.clear()
        self.blocks.clear()


class Scheduler:
    def __init__(self):
        self.cache_id = 0
        self.caches = [Outputs(), Outputs()]

    def schedule_running(self, groups):
        outputs = self.caches[self.cache_id]
        for group in groups:
            outputs.decode_seq_groups.append(group)
        return outputs

    def free_finished(self, is_first_token_last):
        if not is_first_token_last:
            self.cache_id = 1 - self.cache_id
            self.caches[self.cache_id].clear()


def add_request(step, number):
    prompt = f"{step} {number}: hello world"
    return {"prompt": prompt, "token_ids": [ord(letter) * step for letter in prompt * 60]}  # LEAK


scheduler = Scheduler()
for step in range(300):
    scheduler.schedule_running([add_request(step, number) for number in range(6)])
    scheduler.free_finished(is_first_token_last=True)
    time.sleep(0.01)
time.sleep(2)
