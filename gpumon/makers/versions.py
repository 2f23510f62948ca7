"""The versions that a bug report needs: ``gpumon --version`` and ``gpumon doctor``."""

from __future__ import annotations

import platform
import threading

from gpumon import __version__

_PATIENCE = 2.0
"""Seconds for the driver's library to load and tell its version. It need not ask the driver, but a
folder that does not answer can hold up loading."""


def software() -> tuple[str, ...]:
    """The versions of gpumon, Python and Textual, such as ``Python 3.11.7``."""
    # Importing Textual would take ten times as long.
    from importlib.metadata import PackageNotFoundError, version

    try:
        textual = f"Textual {version('textual')}"
    except PackageNotFoundError:
        textual = "no Textual"
    return (f"gpumon {__version__}", f"Python {platform.python_version()}", textual)


def nvidia_driver(patience: float = _PATIENCE) -> str:
    """The version of NVIDIA's driver, or why there is none; within bounded time.

    It is that of the driver's library, which knows it without calling the driver: a driver that
    hangs, or GPUs that take seconds to initialise, do not matter.

    Args:
        patience: Maximum seconds.
    """
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(_driver()), daemon=True)
    asking.start()
    asking.join(patience)
    return told[0] if told else f"NVIDIA driver: its library has not answered for {patience:.0f} s"


def _driver() -> str:
    from pathlib import Path

    from gpumon.makers.nvidia.library import (
        LIBRARY,
        Library,
        library_version,
        load_library,
        loaded_version,
    )
    from gpumon.system.clock import SystemClock

    module = loaded_version()
    try:
        load_library()
    except OSError:
        loaded = "" if module is None else f"; the loaded kernel module is {module}"
        return f"no NVIDIA driver: its library {LIBRARY} was not found{loaded}"
    ours = library_version(Library(SystemClock()))
    driver = f"NVIDIA driver {ours or 'of unknown version'}"
    if module is not None:
        return driver if module == ours else f"{driver}, but the loaded kernel module is {module}"
    # Windows has the module of its guests; some containers hide the version of a loaded one.
    if Path("/dev/dxg").exists() or Path("/sys/module/nvidia").exists():
        return driver
    return f"{driver}, but its kernel module is not loaded"


def kernel_drivers(sys: str = "/sys", proc: str = "/proc") -> tuple[str, ...]:
    """The versions of the kernel's drivers of AMD's and Intel's GPUs that this machine has."""
    from gpumon.makers.drm.cards import DRM_DRIVERS, driver_version, list_nodes

    drivers = sorted({driver for *_, driver in list_nodes(DRM_DRIVERS, sys)})
    return tuple(driver_version(driver, sys, proc) for driver in drivers)


def all_versions() -> str:
    """One version per line."""
    return "\n".join((*software(), nvidia_driver(), *kernel_drivers()))
