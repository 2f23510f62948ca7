"""Checks of CUDA and ROCm: limits, installed versions, and the GPUs that a program would see."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING

from gpumon.doctor import check, passed, unknown, warned
from gpumon.doctor.context import exists, found, parse_version, read_text, resolved, unreadable
from gpumon.host.cuda_visible_devices import visible_devices
from gpumon.host.visible_devices import VARIABLES, selecting_variable, visible_gpus
from gpumon.model.makers import Maker
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, Machine

_LEAST_DRIVER: Mapping[int, int] = {11: 450, 12: 525, 13: 580}
"""The first driver for each CUDA: table 1 of NVIDIA's "CUDA Compatibility"."""
_CUDA_VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
_NVCC_SECONDS = 5.0
_RELEASE = re.compile(r"release (\d+\.\d+)")
_CUDNN = re.compile(r"^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", re.MULTILINE)


@check("newest CUDA")
def newest(context: DiagnosticContext) -> Result | None:
    """The newest CUDA that the driver supports."""
    if context.driver.snapshot is None or not context.gpus_of(Maker.NVIDIA):
        return None
    if context.cuda_version is None:
        return unknown("The driver does not report it.")
    major, minor = context.cuda_version
    return passed(f"{major}.{minor}; most programs built for a later {major}.x run too.")


@check("toolkits")
def toolkits(context: DiagnosticContext) -> Result | None:
    """Installed CUDA toolkits, and whether the driver is new enough for them.

    gpumon searches ``CUDA_HOME``, ``PATH`` and ``/usr/local/cuda*``: ``version.json``,
    ``version.txt``, ``nvcc``.
    """
    there = dict(_toolkits(context.machine))
    barred = unreadable(context.machine, (*_CUDA_VARIABLES, "PATH"))
    if not there and not context.expects_nvidia:
        return None
    if not there and barred:
        return unknown("None found; some folders cannot be read.", "", *barred)
    if not there:
        return passed("None: Python packages include their own; compilers need one.")
    details = [f"{version or 'unknown version'}  {path}" for path, version in there.items()]
    details += barred
    allowed = context.cuda_version
    for path, text in there.items():
        version = parse_version(text or "")
        if version is not None and allowed is not None and version[0] > allowed[0]:
            return warned(
                f"{path} is newer than the driver: programs built with it do not run here.",
                f"Upgrade to {driver_for(version[0])}, or use an older toolkit.",
                *details,
            )
    return passed(f"{len(there)} found.", *details)


def driver_for(major: int) -> str:
    """The driver that programs for a CUDA need, in words."""
    least = _LEAST_DRIVER.get(major)
    return "a newer driver" if least is None else f"driver {least} or later"


def _toolkits(machine: Machine) -> Iterator[tuple[str, str | None]]:
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


def _toolkit_folders(machine: Machine) -> Iterator[Path]:
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


def cudnn_version(header: str) -> str | None:
    """The version that a header of cuDNN defines."""
    numbers = dict(_CUDNN.findall(header))
    if len(numbers) < 3:
        return None
    return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCHLEVEL']}"


def cudnn_of_packages(folder: Path) -> str | None:
    """The version of the cuDNN among Python packages."""
    headers = found(folder, "nvidia/cudnn/include/cudnn_version*.h")
    return next(filter(None, (cudnn_version(read_text(file) or "") for file in headers)), None)


@check("ROCm")
def rocm(context: DiagnosticContext) -> Result | None:
    """Installed versions of ROCm: ``/opt/rocm/.info/version``, ``/opt/rocm-*``.

    Also ``HSA_XNACK``.
    """
    versions = rocm_versions(context.machine)
    if not versions:
        if not context.gpus_of(Maker.AMD):
            return None
        return passed("None in /opt: Python packages include their own libraries.")
    details = [f"{version}  {path}" for path, version in versions.items()]
    retry = context.machine.environ.get("HSA_XNACK")
    if retry is not None:
        details.append(f"HSA_XNACK={retry}")
    return passed(f"{counted(len(versions), 'installation')}.", *details)


def rocm_versions(machine: Machine) -> dict[str, str]:
    """The version of ROCm by folder; the same folder once."""
    found: dict[str, str] = {}
    seen: set[Path] = set()
    for folder in (machine.path("/opt/rocm"), *machine.folder("/opt", "rocm-*")):
        name = machine.name(folder)
        version = (machine.text(f"{name}/.info/version") or "").strip()
        if version and resolved(folder) not in seen:
            seen.add(resolved(folder))
            found[name] = version
    return found


@check("visible GPUs")
def visible(context: DiagnosticContext) -> Result | None:
    """The NVIDIA GPUs that ``CUDA_VISIBLE_DEVICES`` selects here."""
    value = context.machine.environ.get("CUDA_VISIBLE_DEVICES")
    if value is None or not context.expects_nvidia:
        return None
    gpus = context.gpus_of(Maker.NVIDIA)
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


@check("visible AMD")
def visible_amd(context: DiagnosticContext) -> Result | None:
    """The AMD GPUs that ``ROCR_VISIBLE_DEVICES`` and ``HIP_VISIBLE_DEVICES`` select here."""
    return _visible(context, Maker.AMD, (*VARIABLES[Maker.AMD], "CUDA_VISIBLE_DEVICES"))


@check("visible Intel")
def visible_intel(context: DiagnosticContext) -> Result | None:
    """The Intel GPUs that ``ZE_AFFINITY_MASK`` selects here."""
    return _visible(context, Maker.INTEL, VARIABLES[Maker.INTEL])


def _visible(context: DiagnosticContext, maker: Maker, names: tuple[str, ...]) -> Result | None:
    environ = context.machine.environ
    if not context.gpus_of(maker) or not selecting_variable(maker, environ, context.gpus):
        return None
    meaning = visible_gpus(maker, environ, context.gpus)
    given = [name for name in names if name in environ]
    values = ", ".join(f"{name}={environ[name]}" for name in given)
    why = f"; {meaning.why}" if meaning.why else ""
    words = f"{values}: {meaning.sentence}{why}."
    note = [
        f"gpumon does not show the processor's GPU at {card.slot}, but programs may count it."
        for card in context.hidden
        if card.maker is maker
    ]
    if meaning.devices and meaning.certain:
        return passed(words, *note)
    if meaning.devices:
        sure = "UUIDs" if maker is Maker.AMD else "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"
        return warned(words, f"Use {sure}: then the order is known.", *note)
    return warned(words, f"Run `unset {' '.join(given)}`, unless a batch system set it.", *note)
