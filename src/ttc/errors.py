"""The one error a caller can put right."""


class TTCError(ValueError):
    """Bad input, in one sentence: what was expected, what came, what to do. The command line prints it bare."""
