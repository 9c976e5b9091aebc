"""Literal transcriptions that several methods are compared with."""

import copy
import math

import torch
from torch import Tensor, nn


def with_batch_statistics(source: nn.Module) -> tuple[nn.Module, list[Tensor]]:
    """A copy whose BatchNorm layers use the statistics of the batch, and its trainable scales and shifts."""
    network = copy.deepcopy(source).eval().requires_grad_(False)
    parameters: list[Tensor] = []
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
            parameters += [layer.weight.requires_grad_(True), layer.bias.requires_grad_(True)]
    return network, parameters


class Literal:
    """Algorithm 1 of the paper as everybody would write it, with a switch for each component."""

    def __init__(self, source: nn.Module, rla: bool, spc: bool, ss: bool, ga: bool, lr: float = 1e-3) -> None:
        self.model = copy.deepcopy(source).eval().requires_grad_(False)
        self.features = torch.empty(0)
        parameters = []
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.track_running_stats, module.running_mean, module.running_var = False, None, None
                parameters += [module.weight.requires_grad_(True), module.bias.requires_grad_(True)]
            if isinstance(module, nn.Linear):
                module.register_forward_pre_hook(self.remember)
        self.optimizer = torch.optim.Adam(parameters, lr=lr)
        self.rla, self.spc, self.ss, self.ga = rla, spc, ss, ga
        self.counter = 0

    def remember(self, _: nn.Module, inputs: tuple[Tensor]) -> None:
        self.features = inputs[0]

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.model(x), self.features

    def __call__(self, x: Tensor) -> Tensor:
        self.counter += 1
        outputs, features = self.forward(x)
        loss_con = torch.zeros(len(x))
        if self.rla or self.spc:
            aug_outputs, aug_features = self.forward(torch.flip(x, [3]))
            if self.spc:
                kappa = torch.exp(-((features - aug_features) ** 2).sum(1) / 2).detach()
                loss_con = kappa * ((outputs - aug_outputs) ** 2).sum(1)
            if self.rla:
                outputs = (outputs + aug_outputs) / 2
        log_p = outputs.log_softmax(1)
        ent = -(log_p.exp() * log_p).sum(1)
        loss = ent + loss_con
        if self.ss:
            mask = ent <= ent.mean()
            loss = (loss * mask).sum() / mask.sum()
        else:
            loss = loss.mean()
        loss.backward()
        every = max(1, math.floor(200 / 24 + 0.5)) if self.ga else 1
        if self.counter % every == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return outputs.detach()
