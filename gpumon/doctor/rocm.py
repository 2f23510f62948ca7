"""The installed versions of ROCm, AMD's libraries for computing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor.machine import resolved
from gpumon.doctor.result import passed
from gpumon.model.makers import Maker
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.machine import Machine
    from gpumon.doctor.result import Result


def rocm(case: DiagnosticContext) -> Result | None:
    """Installed versions of ROCm."""
    versions = rocm_versions(case.machine)
    if not versions:
        if not case.gpus_of(Maker.AMD):
            return None
        return passed("None in /opt: Python packages include their own libraries.")
    details = [f"{version}  {path}" for path, version in versions.items()]
    retry = case.machine.environ.get("HSA_XNACK")
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
