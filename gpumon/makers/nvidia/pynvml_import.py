"""Imports pynvml for the first time; the modules that others import first begin with this one."""

from types import ModuleType

from gpumon.system.startup_imports import replaced

# ``ctypes.util`` takes 24 of the 34 ms of this import, and pynvml never calls it.
_unused = ModuleType("ctypes.util")
_unused.find_library = None  # type: ignore[attr-defined]  # the one name that pynvml imports
with replaced("ctypes.util", _unused):
    import pynvml  # noqa: F401 - so that it is there
