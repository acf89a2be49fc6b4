"""A sum of losses that keeps the graph of each."""

import time

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(256, 1)
total = torch.zeros(())


def loss_of(size):
    return model(torch.randn(size, 256)).square().mean()  # LEAK


for _ in range(300):
    total = total + loss_of(300)
    time.sleep(0.01)
time.sleep(2)
