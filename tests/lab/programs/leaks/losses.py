"""A sum of losses that keeps the graph of each."""

import time

import torch

torch.set_num_threads(1)
model = torch.nn.Linear(256, 1)
total = torch.zeros(())


def loss_of(batch):
    return model(batch * 2).square().mean()  # LEAK


for step in range(500):
    total = total + loss_of(torch.randn(500, 256))
    time.sleep(0.01)
time.sleep(2)
