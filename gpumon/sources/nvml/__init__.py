"""The cards of this machine, from NVIDIA's driver; ``source.NvmlSource`` is the door."""
