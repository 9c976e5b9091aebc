"""Running an adapter in production: a guard with rollback, and streams of single images."""

from ttc.deploy.guard import Guard, Level
from ttc.deploy.policy import Event, Limits, Policy
from ttc.deploy.stream import Stream

__all__ = ["Event", "Guard", "Level", "Limits", "Policy", "Stream"]
