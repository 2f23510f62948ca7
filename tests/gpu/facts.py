"""Prints what a visited machine is, as JSON: driver, GPUs, kernel, packages, ``gpumon doctor``."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import msgspec

from tests.gpu.anonymous import anonymous
from tests.gpu.visit import Outcome  # noqa: TC001 - msgspec resolves annotations at run time
from tests.gpu.work import ROOT
from tests.nvml_source import NvmlSource

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = (
    *("torch", "jax", "jaxlib", "vllm", "sglang", "nvidia-ml-py", "textual", "nvitop"),
    *("psutil", "msgspec", "pytest"),
)


class GpuFacts(msgspec.Struct):
    """What does not change of a GPU; ``None`` is unknown."""

    name: str | None
    memory_total_bytes: int | None
    compute_capability: str | None
    vbios_version: str | None
    mig_mode: bool | None
    persistence_mode: bool | None


class Facts(msgspec.Struct):
    """What a machine is, if that could be said; ``None`` is unknown."""

    date: str = ""  # YYYY-MM-DD; empty is unknown, as in all texts.
    simulated: bool = False  # Whether the driver was the simulated one.
    gpus: list[GpuFacts] = []
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: str | None = None
    kernel: str = ""
    python: str = ""
    cores: int | None = None
    memory_total_bytes: int | None = None
    packages: dict[str, str] = {}  # Name -> version.
    doctor: Any = None  # The JSON object of ``gpumon doctor``, or why there is none.
    steps: list[Outcome] = []  # How each step of the visit went, which the visit adds.


def facts() -> Facts:
    source = NvmlSource()
    source.open()
    snapshot = source.sample()
    source.close()
    host = snapshot.host
    return Facts(
        date=time.strftime("%Y-%m-%d"),
        simulated="NVML_SIM_STATE" in os.environ,
        gpus=[
            GpuFacts(
                gpu.name,
                gpu.memory_total,
                gpu.compute_capability,
                gpu.vbios_version,
                gpu.mig_mode,
                gpu.persistence_mode,
            )
            for gpu in snapshot.gpus
        ],
        driver_version=host.driver_version,
        nvml_version=host.library_version,
        cuda_version=host.cuda_version,
        kernel=anonymous(f"{platform.system()} {platform.release()}"),
        python=platform.python_version(),
        cores=os.cpu_count(),
        memory_total_bytes=host.memory_total,
        packages=dict(_versions()),
        doctor=_doctor(),
    )


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            yield name, version(name)


def _doctor() -> object:
    """What ``gpumon doctor`` says, without names; the reason where it says nothing."""
    command = [sys.executable, "-m", "gpumon", "doctor", "--json", "--scrub"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=20, check=False)
        return msgspec.json.decode(done.stdout)
    except subprocess.TimeoutExpired:
        return "gpumon doctor did not end within 20 s"
    except msgspec.DecodeError:
        return anonymous(done.stderr.decode(errors="replace").strip())


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(facts()))
