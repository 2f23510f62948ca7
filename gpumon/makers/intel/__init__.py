"""The backend of Intel's GPUs, with the kernel's drivers ``i915`` and ``xe``."""
