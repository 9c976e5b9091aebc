"""The model of a server: builds a guarded adapter for each stream."""

from ttc.core import Adapter
from ttc.deploy import Guard
from ttc.errors import TTCError
from ttc.methods import adapt, find_method
from ttc.models.building import build_trained
from ttc.models.model_input import choose_fitting, model_input
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
        self.network = build_trained(
            settings.model,
            settings.num_classes,
            settings.checkpoint or None,
            settings.statistics or None,
            settings.device,
        )
        fitting = choose_fitting(self.network, settings.size)
        if fitting is None:
            raise TTCError(f"the input size of {settings.model} is not known: give it with --size, such as --size 224")
        self.fitting = fitting
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
