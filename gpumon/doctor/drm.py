"""Checks of the GPUs that the kernel's DRM drivers run: AMD's and Intel's."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.doctor.access import how_to_get_in, in_container, rights
from gpumon.doctor.driver import GIVEN
from gpumon.doctor.machine import exists
from gpumon.doctor.result import failed, passed, warned
from gpumon.doctor.rocm import rocm_versions
from gpumon.host.visible_devices import VARIABLES, selecting_variable, visible_gpus
from gpumon.model.makers import Maker
from gpumon.text.formatting import counted

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.pci import PciGpu
    from gpumon.doctor.result import Result

_KFD = "/dev/kfd"
_NODES = "/sys/class/kfd/kfd/topology/nodes"

_CONTAINER = {
    Maker.AMD: "Start the container with --device /dev/kfd --device /dev/dri.",
    Maker.INTEL: "Start the container with --device /dev/dri.",
}
"""For AMD see rocm.docs.amd.com, "Running ROCm Docker containers"."""

_NO_GROUP = (
    "An administrator must give the file to a group: `sudo udevadm trigger` applies the rules of "
    "the system, which give it to the group render."
)

_NO_DRIVER = {
    Maker.AMD: "Run `sudo modprobe amdgpu`, then `sudo dmesg | grep amdgpu`: the kernel may be too "
    "old for the GPU, or its firmware (linux-firmware) missing.",
    Maker.INTEL: "Run `sudo dmesg | grep -E 'i915|xe'`: the kernel may be too old for the GPU, or "
    "its firmware (linux-firmware) missing.",
}

# The kernel parameters are those of CONFIG_DRM_AMDGPU_SI and CONFIG_DRM_AMDGPU_CIK in the kernel's
# ``drivers/gpu/drm/amd/amdgpu/Kconfig``.
_RADEON = (
    "The first two generations of GCN (HD 7000 to R9 290) work with amdgpu too: start the kernel "
    "with `radeon.si_support=0 amdgpu.si_support=1 radeon.cik_support=0 amdgpu.cik_support=1`. "
    "gpumon and ROCm cannot use older ones."
)


def amd_driver(case: DiagnosticContext) -> Result | None:
    """Whether AMD's GPUs have the driver amdgpu, and its version."""
    return _driver(case, Maker.AMD)


def intel_driver(case: DiagnosticContext) -> Result | None:
    """Whether Intel's GPUs have the driver i915 or xe, and its version."""
    return _driver(case, Maker.INTEL)


def _driver(case: DiagnosticContext, maker: Maker) -> Result | None:
    cards = case.cards_of(maker)
    if not cards or case.in_wsl:
        return None
    details = [f"{card.slot}  {card.driver or 'no driver'}" for card in cards]
    drivers = dict.fromkeys(card.driver for card in cards if card.driver and card.shown_by_gpumon)
    versions = "; ".join(_version(case, driver) for driver in drivers)
    if any(card.driver == "radeon" for card in cards):
        complain = warned if case.gpus else failed
        return complain(
            "The old driver radeon controls a GPU: gpumon and ROCm need amdgpu.",
            _RADEON,
            *details,
        )
    idle = [card for card in cards if card.driver is None]
    if idle and case.gpus and all(card.integrated for card in idle):
        return passed("The processor's GPU has no driver, and is not used.", *details)
    if idle:
        complain = warned if case.gpus else failed
        return complain(
            f"{counted(len(idle), f'{maker.value} GPU')} without a driver.",
            _NO_DRIVER[maker],
            *details,
        )
    if not drivers:
        given = all(card.driver in GIVEN for card in cards)
        other = ", ".join(sorted({card.driver or "" for card in cards}))
        why = "reserved for virtual machines" if given else "gpumon does not read this driver"
        return passed(f"{other}: {why}.")
    return passed(f"{versions}.", *_parameters(case, drivers))


def _version(case: DiagnosticContext, driver: str) -> str:
    """The driver and its version: that of the kernel, unless it was installed apart (DKMS)."""
    own = (case.machine.text(f"/sys/module/{driver}/version") or "").strip()
    if own:
        return f"{driver} {own}, installed beside the kernel (DKMS)"
    release = (case.machine.text("/proc/sys/kernel/osrelease") or "").strip()
    return f"{driver}, part of Linux {release}" if release else f"{driver}, part of the kernel"


def _parameters(case: DiagnosticContext, drivers: dict[str, None]) -> list[str]:
    """Parameters of amdgpu that were changed and decide what programs may do."""
    retry = (case.machine.text("/sys/module/amdgpu/parameters/noretry") or "").strip()
    if "amdgpu" not in drivers or retry not in {"0", "1"}:
        return []
    # The kernel's ``Documentation/gpu/amdgpu/module-parameters.rst``.
    return [
        f"noretry={retry}: retries after page faults (XNACK) are {'off' if int(retry) else 'on'}"
    ]


def used_gpus(case: DiagnosticContext, maker: Maker | None = None) -> list[PciGpu]:
    """The GPUs of AMD and Intel that gpumon shows, or those of one of the two makers."""
    return [
        card
        for card in case.cards
        if card.maker is not Maker.NVIDIA and card.shown_by_gpumon and card not in case.hidden
        if maker in (None, card.maker)
    ]


def render_nodes(case: DiagnosticContext) -> Result | None:
    """Whether this user may open the device files through which programs use the GPUs.

    The files are not opened: that would wake a sleeping GPU.
    """
    cards = [card for card in used_gpus(case) if card.render_nodes]
    if not cards or case.in_wsl:
        return None
    files = [case.machine.path(f"/dev/dri/{node}") for card in cards for node in card.render_nodes]
    there = [file for file in files if exists(file)]
    contained = in_container(case)
    if not there or (len(there) < len(files) and not contained):
        missing = case.machine.name(next(file for file in files if file not in there))
        return failed(
            f"The driver is loaded, but there is no {missing}: programs cannot use the GPU.",
            _CONTAINER[cards[0].maker]
            if contained
            else "Run `sudo udevadm trigger` to create the device files.",
        )
    barred = [file for file in there if not _may_open(file)]
    if barred:
        names = ", ".join(case.machine.name(file) for file in barred)
        return failed(
            f"You have no permission to open {names}: your programs cannot use the GPU.",
            _how_to_get_in(barred[0], contained=contained),
            *(f"{case.machine.name(file)}  {rights(file)}" for file in barred),
        )
    return passed(f"You may open {', '.join(case.machine.name(file) for file in there)}.")


def _may_open(file: Path) -> bool:
    return os.access(file, os.R_OK | os.W_OK)


def _how_to_get_in(file: Path, *, contained: bool) -> str:
    if contained:
        group = file.stat().st_gid
        return f"Start the container with --group-add {group}, the group of the file on the host."
    return how_to_get_in(file, _NO_GROUP)


def compute_driver(case: DiagnosticContext) -> Result | None:
    """Whether ROCm's programs reach the compute part of amdgpu (KFD)."""
    cards = used_gpus(case, Maker.AMD)
    rocm = bool(rocm_versions(case.machine))
    if not cards or case.in_wsl or (not rocm and all(card.integrated for card in cards)):
        return None
    file = case.machine.path(_KFD)
    if not exists(file):
        complain = failed if rocm else warned
        return complain(
            f"There is no {_KFD}: programs draw, but ROCm's programs do not start.",
            _CONTAINER[Maker.AMD]
            if in_container(case)
            else "The kernel may be built without CONFIG_HSA_AMD, or the GPU be older than what "
            "KFD supports: `sudo dmesg | grep kfd` says which.",
        )
    if not _may_open(file):
        return failed(
            f"You have no permission to open {_KFD}: ROCm's programs do not start.",
            _how_to_get_in(file, contained=in_container(case)),
            f"{_KFD}  {rights(file)}",
        )
    numbers = [
        case.machine.text(f"{case.machine.name(folder)}/gpu_id")
        for folder in case.machine.folder(_NODES, "*")
    ]
    # A number that cannot be read is that of a GPU that this cgroup may not use; 0 is a processor.
    if numbers and all(number is not None and number.strip() == "0" for number in numbers):
        return warned(
            "You may open it, but KFD supports no GPU of this machine: ROCm's programs find none.",
            "Run `sudo dmesg | grep kfd`: the GPU may be too old, or its slot lack PCIe atomics.",
        )
    return passed(f"You may open {_KFD}, which ROCm needs.")


def process_lists(case: DiagnosticContext) -> Result | None:
    """Whose processes gpumon sees on AMD's and Intel's GPUs."""
    makers = [maker for maker in (Maker.AMD, Maker.INTEL) if case.gpus_of(maker)]
    if not makers:
        return None
    whose = " and ".join(f"{maker.value}'s" for maker in makers)
    if case.machine.root_user:
        return passed(f"Root sees the processes of all users on {whose} GPUs.")
    more = " Those of ROCm are shown for all users." if Maker.AMD in makers else ""
    lack = (
        " How busy Intel's GPUs are, and how much memory is used, is known to root only."
        if Maker.INTEL in makers
        else ""
    )
    return passed(
        f"On {whose} GPUs you see your own processes: the kernel shows those of other users to "
        f"root only.{more}{lack}",
    )


def processor_gpus(case: DiagnosticContext) -> Result | None:
    """The GPUs of processors that gpumon does not show."""
    if not case.hidden:
        return None
    names = ", ".join(f"{card.maker.value}'s at {card.slot}" for card in case.hidden)
    return passed(
        f"gpumon leaves out {names}, because there is another GPU. `gpumon --backend all` shows "
        "it too.",
    )


def visible_amd(case: DiagnosticContext) -> Result | None:
    """The AMD GPUs that a program started from here would see."""
    return _visible(case, Maker.AMD, (*VARIABLES[Maker.AMD], "CUDA_VISIBLE_DEVICES"))


def visible_intel(case: DiagnosticContext) -> Result | None:
    """The Intel GPUs that a program started from here would see."""
    return _visible(case, Maker.INTEL, VARIABLES[Maker.INTEL])


def _visible(case: DiagnosticContext, maker: Maker, names: tuple[str, ...]) -> Result | None:
    environ = case.machine.environ
    if not case.gpus_of(maker) or not selecting_variable(maker, environ, case.gpus):
        return None
    meaning = visible_gpus(maker, environ, case.gpus)
    given = [one for one in names if one in environ]
    values = ", ".join(f"{one}={environ[one]}" for one in given)
    why = f"; {meaning.why}" if meaning.why else ""
    words = f"{values}: {meaning.sentence}{why}."
    note = [
        f"gpumon does not show the processor's GPU at {card.slot}, but programs may count it."
        for card in case.hidden
        if card.maker is maker
    ]
    if meaning.devices and meaning.certain:
        return passed(words, *note)
    if meaning.devices:
        sure = "UUIDs" if maker is Maker.AMD else "ZE_ENABLE_PCI_ID_DEVICE_ORDER=1"
        return warned(words, f"Use {sure}: then the order is known.", *note)
    return warned(words, f"Run `unset {' '.join(given)}`, unless a batch system set it.", *note)
