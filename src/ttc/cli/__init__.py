"""The ``ttc`` command: one file a command; torch is imported inside the commands that need it."""
