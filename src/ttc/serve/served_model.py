"""The model of a server: builds a guarded adapter for each stream."""

import torch

from ttc.core import Adapter
from ttc.data.decoding import Fitting
from ttc.deploy import Guard
from ttc.errors import TTCError
from ttc.methods import adapt, find_method
from ttc.models import MODELS, build
from ttc.models.model_input import model_input, stated_fitting
from ttc.serve.serve_settings import ServeSettings


class ServedModel:
    """A source model, and how its adapters are built.

    Args:
        settings: The names of model, method and device.

    Raises:
        TTCError: If a name is unknown, the weights or the device cannot be used, or the input size is not known.
    """

    def __init__(self, settings: ServeSettings) -> None:
        self.settings = settings
        find_method(settings.method)  # a wrong name is found before files are opened
        if not settings.checkpoint and settings.model in MODELS:
            raise TTCError(f"the model '{settings.model}' has no weights of its own; pass them with --checkpoint FILE")
        network = build(settings.model, settings.num_classes, settings.checkpoint or None, settings.statistics or None)
        try:
            self.network = network.to(torch.device(settings.device))
        except (RuntimeError, AssertionError) as error:
            reason = str(error).partition("\n")[0]
            raise TTCError(
                f"the device {settings.device!r} cannot be used here ({reason}): try --device cpu"
            ) from error
        self.fitting = self._fitting()
        self.num_classes = model_input(self.network, (self.fitting.side, self.fitting.side)).num_classes
        if settings.class_names and len(settings.class_names) != self.num_classes:
            raise TTCError(
                f"the model has {self.num_classes} classes and the file {len(settings.class_names)} names: "
                "give one name per line, in the order of the classes"
            )

    def new_predictor(self) -> Guard | Adapter:
        """Build an adapter in the state of the source model, guarded if the settings say so."""
        adapter = adapt(
            self.network, self.settings.method, head=self.settings.head, small_batches=self.settings.small_batches
        )
        return Guard(adapter) if self.settings.guard else adapter

    def class_name(self, index: int) -> str:
        """Return the name of a class, or its number where names are not known."""
        return self.settings.class_names[index] if self.settings.class_names else str(index)

    def _fitting(self) -> Fitting:
        own, size = stated_fitting(self.network), self.settings.size
        if own is None and size is None:
            raise TTCError(
                f"the input size of {self.settings.model} is not known: give it with --size, such as --size 224"
            )
        if own is None or size is None:
            return own or Fitting.to(size or 1)
        return Fitting(size, round(size * own.resize / own.side), own.interpolation)
