"""The benchmark engine: a typed protocol, scenarios, evaluation with its cost, a resumable store, metrics."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttc.bench.cost import Cost
    from ttc.bench.evaluation import Result, evaluate
    from ttc.bench.protocol import Protocol, difference
    from ttc.bench.scenarios import SCENARIOS, Batch, Scenario
    from ttc.bench.spec import Spec
    from ttc.bench.store import Row, Store

_HOMES = {
    "SCENARIOS": "scenarios",
    "Batch": "scenarios",
    "Cost": "cost",
    "Protocol": "protocol",
    "Result": "evaluation",
    "Row": "store",
    "Scenario": "scenarios",
    "Spec": "spec",
    "Store": "store",
    "difference": "protocol",
    "evaluate": "evaluation",
}
__all__ = [
    "SCENARIOS",
    "Batch",
    "Cost",
    "Protocol",
    "Result",
    "Row",
    "Scenario",
    "Spec",
    "Store",
    "difference",
    "evaluate",
]


def __getattr__(name: str) -> object:
    """Import on first use: listing results needs no torch."""
    if name in _HOMES:
        return getattr(import_module(f"ttc.bench.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'ttc.bench' has no attribute '{name}'")
