"""gpumon: what the GPUs of this machine do, and whose work it is.

``docs/python.md`` describes the functions for programs. They are imported when they are first used:
``import gpumon`` imports nothing else and starts nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
"""Importing ``typing`` takes longer than all else here."""
if TYPE_CHECKING:
    from gpumon.api.errors import GpuError, NoGpuFitsError
    from gpumon.api.history import History, history
    from gpumon.api.measured import measured
    from gpumon.api.measurement import Measurement, measure
    from gpumon.api.selection import Selected, select
    from gpumon.api.snapshots import Snapshot, snapshot
    from gpumon.api.watching import Watch, watch
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu

__all__ = [
    "Gpu",
    "GpuError",
    "GpuProcess",
    "GpuUsage",
    "History",
    "Measurement",
    "NoGpuFitsError",
    "Selected",
    "Snapshot",
    "Watch",
    "__version__",
    "history",
    "measure",
    "measured",
    "select",
    "snapshot",
    "watch",
]

_MODULES = {
    "Gpu": "gpumon.model.snapshot",
    "GpuError": "gpumon.api.errors",
    "GpuProcess": "gpumon.model.processes",
    "NoGpuFitsError": "gpumon.api.errors",
    "GpuUsage": "gpumon.api.usage",
    "History": "gpumon.api.history",
    "history": "gpumon.api.history",
    "Measurement": "gpumon.api.measurement",
    "measure": "gpumon.api.measurement",
    "measured": "gpumon.api.measured",
    "Selected": "gpumon.api.selection",
    "select": "gpumon.api.selection",
    "Snapshot": "gpumon.api.snapshots",
    "snapshot": "gpumon.api.snapshots",
    "Watch": "gpumon.api.watching",
    "watch": "gpumon.api.watching",
}
"""The module of each name."""


if not TYPE_CHECKING:  # so that type checkers know the names above and no other

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
