"""gpumon: what the GPUs of this machine do, and whose work it is."""

__version__ = "0.1.0"
