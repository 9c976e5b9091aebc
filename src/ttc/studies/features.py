"""The features with which a model predicted a stream, before it learned from each batch."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from ttc.bench import method_specs, scenarios
from ttc.bench.grid import domains_of
from ttc.bench.precision import stored_type
from ttc.bench.protocol import Protocol
from ttc.bench.spec import Spec
from ttc.bench.workload import ResolvedWorkload
from ttc.clustering import default_optimizer
from ttc.core import Adapter, Classifier, Prediction
from ttc.data import Images, as_tensor
from ttc.nn import copy_with_trainable_norms

Floats = NDArray[np.float32]


def adapted(workload: ResolvedWorkload, protocol: Protocol) -> Floats:
    """The features (N, D) of the first view of each image, in the cell that ``protocol`` states."""
    model = _network(workload, protocol)
    adapter = method_specs.build(model, protocol.method, protocol.options, dtype=protocol.dtype)
    _met(adapter, _images(workload, protocol))
    seen: list[Tensor] = []
    adapter.model.register_forward_hook(lambda module, inputs, output: seen.append(output.features.detach()))

    def features_of(x: Tensor, labels: Tensor) -> Tensor:
        seen.clear()
        adapter(x)
        return seen[0]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(protocol.seed)
        return _streamed(workload, protocol, features_of)


def _met(adapter: Adapter, images: Images) -> None:
    """Show the adapter images of this shape once and reset it: its own trial of a new shape is not a prediction."""
    weight = next(adapter.model.parameters())
    adapter(torch.rand_like(as_tensor(images.pixels([0, 0]))).to(weight))
    adapter.reset()


def supervised(workload: ResolvedWorkload, protocol: Protocol) -> Floats:
    """The same with the labels at hand: TENT's layers and optimizer, cross-entropy in place of the entropy."""
    network = Classifier(_network(workload, protocol))
    model: nn.Module = copy_with_trainable_norms(network)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = default_optimizer(network.num_classes)(parameters)

    def features_of(x: Tensor, labels: Tensor) -> Tensor:
        with torch.enable_grad():
            prediction: Prediction = model(x)
            F.cross_entropy(prediction.logits, labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        return prediction.features.detach()

    return _streamed(workload, protocol, features_of)


def _network(workload: ResolvedWorkload, protocol: Protocol) -> nn.Module:
    return workload.network(_images(workload, protocol).num_classes, protocol.dtype, protocol.device)


def _images(workload: ResolvedWorkload, protocol: Protocol) -> Images:
    return workload.domain(domains_of(protocol)[0], protocol.images, cached=True)


def _streamed(
    workload: ResolvedWorkload, protocol: Protocol, features_of: Callable[[Tensor, Tensor], Tensor]
) -> Floats:
    images = _images(workload, protocol)
    labels = np.asarray(images.labels, dtype=np.int64)
    found: list[Floats] = []
    for batch in scenarios.stream(Spec.read(protocol.scenario), [labels], protocol.batch_size, protocol.seed):
        x = as_tensor(images.pixels(batch.image)).to(protocol.device, stored_type(protocol.dtype))
        truth = torch.from_numpy(labels[batch.image]).to(protocol.device)
        found.append(features_of(x, truth).float().cpu().numpy())
    return np.concatenate(found)
