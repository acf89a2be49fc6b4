"""vllm-project/vllm#15597: with n > 1 each sample of a request is entered under an id of its own,
and only the request's id is removed when it ends."""

import copy
import time


class SequenceGroup:
    def __init__(self, request_id, params):
        self.request_id, self.params = request_id, params
        self.pixel_values = None


class Engine:
    def __init__(self):
        self.seq_id_to_seq_group = {}

    def add_processed_request(self, request_id, image, params):
        group = SequenceGroup(request_id, copy.deepcopy(params))
        group.pixel_values = process(image)
        self.seq_id_to_seq_group[request_id] = group

    def add_parallel(self, request_id, image, params):
        for number in range(params["n"]):
            self.add_processed_request(f"{request_id}_parallel_sample_{number}", image, params)

    def finish(self, request_id):
        self.seq_id_to_seq_group.pop(request_id, None)


def process(image):
    return [value / 255 for value in image]  # LEAK


engine = Engine()
image = bytes(range(250)) * 20
for step in range(250):
    engine.add_parallel(f"request-{step}", image, {"n": 2, "seed": step})
    engine.finish(f"request-{step}")
    time.sleep(0.015)
time.sleep(2)
