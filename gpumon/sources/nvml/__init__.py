"""The NVML backend; ``source.NvmlSource`` is the door."""

from gpumon.system.startup_imports import import_pynvml

import_pynvml()
