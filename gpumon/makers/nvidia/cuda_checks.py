"""Checks of ``gpumon doctor`` on CUDA: limits, installed versions, and the GPUs of a program."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

from gpumon.doctor import check, failed, passed, unknown, warned
from gpumon.doctor.context import exists, parse_version, read_text, resolved, unreadable
from gpumon.doctor.frameworks import cudnn_version
from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.library import loaded_version
from gpumon.makers.nvidia.visible_devices import visible_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, ExaminedMachine
    from gpumon.doctor.frameworks import Build

_LEAST_DRIVER: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""The first driver for each CUDA: table 1 of NVIDIA's "CUDA Compatibility"."""
_CUDA_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_NVCC_SECONDS = 5.0
_RELEASE = re.compile(r"release (\d+\.\d+)")


def is_expected(context: DiagnosticContext) -> bool:
    """Whether NVIDIA's driver should be here.

    It should on a machine without any GPU too, because GPUs are not always on a PCI bus.
    """
    return bool(
        context.cards_of(MAKER)
        or loaded_version(str(context.machine.path("/proc"))) is not None
        or context.in_wsl
        or context.gpus_of(MAKER)
        or not (context.cards or context.gpus)
    )


def _cuda_version(context: DiagnosticContext) -> tuple[int, int] | None:
    """The newest CUDA that the driver supports."""
    snapshot = context.driver.snapshot
    return None if snapshot is None else parse_version(snapshot.host.cuda_version or "")


@check("newest CUDA")
def newest(context: DiagnosticContext) -> Result | None:
    """The newest CUDA that the driver supports."""
    if context.driver.snapshot is None or not context.gpus_of(MAKER):
        return None
    version = _cuda_version(context)
    if version is None:
        return unknown("The driver does not report it.")
    major, minor = version
    return passed(f"{major}.{minor}; most programs built for a later {major}.x run too.")


@check("toolkits")
def toolkits(context: DiagnosticContext) -> Result | None:
    """Installed CUDA toolkits, and whether the driver is new enough for them.

    gpumon searches ``CUDA_HOME``, ``PATH`` and ``/usr/local/cuda*``: ``version.json``,
    ``version.txt``, ``nvcc``.
    """
    there = dict(_toolkits(context.machine))
    barred = unreadable(context.machine, (*_CUDA_VARIABLES, "PATH"))
    if not there and not is_expected(context):
        return None
    if not there and barred:
        return unknown("None found; some folders cannot be read.", "", *barred)
    if not there:
        return passed("None: Python packages include their own; compilers need one.")
    details = [f"{version or 'unknown version'}  {path}" for path, version in there.items()]
    details += barred
    allowed = _cuda_version(context)
    for path, text in there.items():
        version = parse_version(text or "")
        if version is not None and allowed is not None and version[0] > allowed[0]:
            return warned(
                f"{path} is newer than the driver: programs built with it do not run here.",
                f"Upgrade to {_driver_for(version[0])}, or use an older toolkit.",
                *details,
            )
    return passed(f"{len(there)} found.", *details)


def _driver_for(major: int) -> str:
    """The driver that programs for a CUDA need, in words."""
    least = _LEAST_DRIVER.get(major)
    return "a newer driver" if least is None else f"driver {least} or later"


def _toolkits(machine: ExaminedMachine) -> Iterator[tuple[str, str | None]]:
    """Where each toolkit is, and its version; the same folder once."""
    seen: set[Path] = set()
    for path in _toolkit_folders(machine):
        real = resolved(path)
        if real in seen or not os.path.isdir(real):  # noqa: PTH112 - Path.is_dir raises
            continue
        seen.add(real)
        nvcc = path / "bin/nvcc"
        if (version := _written_version(path)) is not None:
            yield machine.name(path), version
        elif exists(nvcc):
            # It may be in /usr/bin, or a script that calls another: the folder is no evidence.
            yield machine.name(nvcc), _nvcc_version(nvcc)


def _toolkit_folders(machine: ExaminedMachine) -> Iterator[Path]:
    for variable in _CUDA_VARIABLES:
        yield from map(machine.path, machine.folders(variable))
    for folder in machine.folders("PATH"):
        if exists(nvcc := machine.path(f"{folder}/nvcc")):
            yield resolved(nvcc).parent.parent
    yield from reversed(machine.folder("/usr/local", "cuda-*"))
    yield machine.path("/usr/local/cuda")
    yield machine.path("/opt/cuda")


def _written_version(folder: Path) -> str | None:
    """The version from its own files: ``version.json`` from CUDA 11.1 on, before a text file."""
    text = read_text(folder / "version.json")
    if text is not None:
        try:
            return str(json.loads(text)["cuda"]["version"])
        except (ValueError, KeyError, TypeError):
            return None
    match = re.search(r"CUDA Version (\d+\.\d+[\d.]*)", read_text(folder / "version.txt") or "")
    return match[1] if match else None


def _nvcc_version(nvcc: Path) -> str | None:
    try:
        done = subprocess.run(
            [nvcc, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_NVCC_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _RELEASE.search(done.stdout)
    return match[1] if match else None


@check("cuDNN")
def cudnn(context: DiagnosticContext) -> Result | None:
    """The system's cuDNN, by its header; Python packages bring their own."""
    machine = context.machine
    folders = [path / "include" for path in _toolkit_folders(machine)]
    folders += [
        machine.path("/usr/include"),
        *machine.folder("/usr/include", "*-linux-gnu"),
        *machine.folder("/usr/local", "cudnn*/include"),
    ]
    versions: dict[Path, str] = {}
    for folder in folders:
        for header in ("cudnn_version.h", "cudnn.h"):
            version = cudnn_version(read_text(folder / header) or "")
            if version is not None:
                versions.setdefault(resolved(folder / header), version)
                break
    if not versions:
        return None
    details = (f"{version}  {machine.name(path)}" for path, version in versions.items())
    return passed("Found its header.", *details)


@check("visible GPUs")
def visible(context: DiagnosticContext) -> Result | None:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` selects here."""
    value = context.machine.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None or not is_expected(context):
        return None
    gpus = context.gpus_of(MAKER)
    if not gpus:
        return unknown(f"CUDA_VISIBLE_DEVICES={value}; without a driver its meaning is unknown.")
    meaning = visible_devices(value, context.machine.environ.get("CUDA_DEVICE_ORDER"), gpus)
    why = f"; {meaning.why}" if meaning.why else ""
    words = f"CUDA_VISIBLE_DEVICES={value}: {meaning.sentence}{why}."
    if meaning.devices:
        return passed(words)
    if not meaning.certain:
        return warned(
            words,
            "Use UUIDs, or set CUDA_DEVICE_ORDER=PCI_BUS_ID for nvidia-smi's order.",
        )
    return warned(
        words,
        "Run `unset CUDA_VISIBLE_DEVICES`, unless a batch system set it.",
    )


def judge_build(
    context: DiagnosticContext, build: Build, version: str, details: tuple[str, ...]
) -> Result:
    """Whether the driver supports the CUDA that a framework was built for."""
    built, newest_cuda = parse_version(version), _cuda_version(context)
    words = f"{build.version}, built for CUDA {version}"
    if newest_cuda is None or built is None:
        if not context.gpus_of(MAKER):
            return passed(
                f"{words}; without NVIDIA's driver there is nothing to compare it with.", *details
            )
        return unknown(f"{words}; the newest CUDA that the driver supports is unknown.")
    major, minor = newest_cuda
    if built[0] > major:
        return failed(
            f"{words}; the driver supports CUDA up to {major}.{minor}.",
            f"Upgrade to {_driver_for(built[0])}, or install a build for CUDA {major}.",
            *details,
        )
    if built > newest_cuda:
        words += f", newer than the driver's {major}.{minor} but of the same major version"
    return passed(f"{words}.", *details)
