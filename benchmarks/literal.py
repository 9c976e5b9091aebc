"""Literal transcriptions of the seven methods: eager, one pass per view, torch's own layers."""

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def prepared(model: nn.Module, *, trained: bool) -> nn.Module:
    """A copy that normalizes with the statistics of the batch, with its scale and shift trainable."""
    network = copy.deepcopy(model).eval().requires_grad_(False)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.track_running_stats, module.running_mean, module.running_var = False, None, None
            module.requires_grad_(trained)
    return network


def entropy(logits: Tensor) -> Tensor:
    return -(logits.softmax(1) * logits.log_softmax(1)).sum(1)


class Source:
    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits


class T3A(Source):
    """Class prototypes of the 100 most confident features per class."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        head = [module for module in self.model.modules() if isinstance(module, nn.Linear)][-1]
        head.register_forward_pre_hook(self._read_features)
        self.features = head.weight.detach()
        logits = head(self.features).detach()
        self.supports, self.labels, self.entropies = self.features, logits.argmax(1), entropy(logits)

    def _read_features(self, module: nn.Module, inputs: tuple[Tensor]) -> None:
        self.features = inputs[0]

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        supports = torch.cat([self.supports, self.features])
        labels, entropies = torch.cat([self.labels, logits.argmax(1)]), torch.cat([self.entropies, entropy(logits)])
        rows = torch.cat([torch.where(labels == k)[0][entropies[labels == k].argsort()[:100]] for k in range(10)])
        self.supports, self.labels, self.entropies = supports[rows], labels[rows], entropies[rows]
        prototypes = F.normalize(F.one_hot(self.labels, 10).float().T @ F.normalize(self.supports))
        return self.features @ prototypes.T


class Norm:
    def __init__(self, model: nn.Module) -> None:
        self.model = prepared(model, trained=False)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        return logits


class Tent:
    def __init__(self, model: nn.Module) -> None:
        self.model = prepared(model, trained=True)
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=1e-3)

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        entropy(logits).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return logits.detach()


class ETA(Tent):
    """On ten classes."""

    average: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x)
        values, margin = entropy(logits), 0.4 * math.log(10)
        rows = torch.where(values < margin)[0]
        if self.average is not None:
            similar = F.cosine_similarity(self.average[None], logits[rows].softmax(1).detach())
            rows = rows[similar.abs() < 0.4]
        if len(rows):
            mean = logits[rows].softmax(1).mean(0).detach()
            self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
            (values[rows] * torch.exp(margin - values[rows].detach())).mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return logits.detach()


class TIPI(Tent):
    """As on CIFAR-10, the running statistics left out: at N = 100 predictions do not use them."""

    def __call__(self, x: Tensor) -> Tensor:
        moved = x.clone().requires_grad_(True)
        logits = self.model(moved)
        reference = logits.detach().log_softmax(1)
        loss = F.kl_div(reference, logits.log_softmax(1), reduction="batchmean", log_target=True)
        (slope,) = torch.autograd.grad(loss, moved, retain_graph=True)
        adversarial = self.model(x + 2 / 255 * slope.sign())
        F.kl_div(reference, adversarial.log_softmax(1), reduction="batchmean", log_target=True).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            after: Tensor = self.model(x)
        return after


class TTC(Tent):
    """Algorithm 1 of the paper."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.seen, self.features = 0, torch.empty(0)
        head = [module for module in self.model.modules() if isinstance(module, nn.Linear)][-1]
        head.register_forward_pre_hook(self._read_features)

    def _read_features(self, module: nn.Module, inputs: tuple[Tensor]) -> None:
        self.features = inputs[0]

    def __call__(self, x: Tensor) -> Tensor:
        one, features_one = self.model(x), self.features
        two, features_two = self.model(x.flip(-1)), self.features
        fused = (one + two) / 2
        values = entropy(fused)
        selected = values <= values.mean()
        kappa = torch.exp(-(features_one - features_two).square().sum(1) / 2).detach()
        constraint = kappa * (one - two).square().sum(1)
        (values[selected].mean() + constraint[selected].mean()).backward()
        self.seen += 1
        if self.seen % max(1, math.floor(200 / len(x) + 0.5)) == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        output: Tensor = fused.detach()
        return output


class Floor:
    """The convolutions, matrix products and ReLUs of two forward and two input-gradient passes, and nothing else."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        for module in list(self.model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, nn.Identity())

    def __call__(self, x: Tensor) -> Tensor:
        for view in (x, x.flip(-1)):
            view = view.clone().requires_grad_(True)
            logits: Tensor = self.model(view)
            torch.autograd.grad(logits.sum(), view)
        return logits.detach()
