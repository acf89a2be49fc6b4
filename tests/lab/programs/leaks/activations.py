"""A hook that keeps what a layer answered."""

import time

import torch

torch.set_num_threads(1)
seen = []
layer = torch.nn.Linear(32, 512)
layer.register_forward_hook(lambda module, given, answer: seen.append(answer))

with torch.no_grad():
    for _ in range(300):
        layer(torch.randn(150, 32))  # LEAK
        time.sleep(0.01)
time.sleep(2)
