"""The same network, faster, with the same outputs; nothing is patched or traced that others could notice."""

from ttc.fast.forward import FastForward, accelerate_

__all__ = ["FastForward", "accelerate_"]
