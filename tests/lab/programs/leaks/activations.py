"""A hook that keeps what a layer answered."""

import time

import torch

torch.set_num_threads(1)
seen = []
layer = torch.nn.Linear(256, 256)
layer.register_forward_hook(lambda module, given, answer: seen.append(answer.clone()))  # LEAK

with torch.no_grad():
    for step in range(500):
        layer(torch.randn(500, 256))
        time.sleep(0.01)
time.sleep(2)
