"""``gpumon end``: ends processes on GPUs from a shell."""
