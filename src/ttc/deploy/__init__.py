"""Running an adapter for real: a guard with rollback, and streams of single images."""

from ttc.deploy.guard import Event, Guard, Policy
from ttc.deploy.signs import Limits
from ttc.deploy.stream import Stream

__all__ = ["Event", "Guard", "Limits", "Policy", "Stream"]
