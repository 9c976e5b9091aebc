"""Test-time adaptation as clustering: adapt a trained image classifier to the data it meets."""

__version__ = "0.1.0.dev0"
