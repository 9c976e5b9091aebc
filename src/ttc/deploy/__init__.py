"""Running an adapter for real: a guard with rollback, and streams of single images."""

from ttc.deploy.guard import Guard
from ttc.deploy.policy import Event, Limits, Policy
from ttc.deploy.stream import Stream

__all__ = ["Event", "Guard", "Limits", "Policy", "Stream"]
