"""gpumon: what the GPUs of this machine do, and whose work it is.

``docs/python.md`` describes the functions for programs. They are imported when they are first used:
``import gpumon`` imports nothing else and starts nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False
"""Importing ``typing`` takes longer than all else here."""
if TYPE_CHECKING:
    from gpumon.api.errors import GpuError, NoGpuFitsError
    from gpumon.api.measurement import GpuUsage, Measurement, measure, measured
    from gpumon.api.selection import Selected, select
    from gpumon.api.snapshots import Snapshot, snapshot
    from gpumon.api.watching import Watch, watch

__all__ = [
    "GpuError",
    "GpuUsage",
    "Measurement",
    "NoGpuFitsError",
    "Selected",
    "Snapshot",
    "Watch",
    "__version__",
    "measure",
    "measured",
    "select",
    "snapshot",
    "watch",
]

_MODULES = {
    "GpuError": "errors",
    "NoGpuFitsError": "errors",
    "GpuUsage": "measurement",
    "Measurement": "measurement",
    "measure": "measurement",
    "measured": "measurement",
    "Selected": "selection",
    "select": "selection",
    "Snapshot": "snapshots",
    "snapshot": "snapshots",
    "Watch": "watching",
    "watch": "watching",
}
"""The module in ``gpumon.api`` of each name."""


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"gpumon.api.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
