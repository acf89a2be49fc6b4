"""huggingface/transformers#6999: the trainer adds up the loss of each step without detaching it, so
that a part of the graph of each stays."""

import time

import torch

torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def training_step(self, inputs):
        self.optimizer.zero_grad()
        loss = self.compute_loss(inputs)
        loss.backward(retain_graph=True)
        self.optimizer.step()
        return loss

    def compute_loss(self, inputs):
        return self.model(inputs).square().mean()  # LEAK

    def train(self, steps):
        tr_loss = torch.zeros(())
        for _ in range(steps):
            tr_loss = tr_loss + self.training_step(torch.randn(256, 64))
            time.sleep(0.01)
        return tr_loss


kept = Trainer().train(300)
time.sleep(2)
