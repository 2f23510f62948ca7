"""Checks of ``gpumon doctor`` on NVIDIA's driver, its device files and its GPUs."""

from __future__ import annotations

import errno
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpumon.doctor import MakerChecks, check, failed, passed, unknown, warned
from gpumon.doctor.access import in_container, no_permission
from gpumon.doctor.context import exists, resolved, unreadable
from gpumon.doctor.gpus import gpu_names
from gpumon.findings.faults import advice_on
from gpumon.host.kernel_log import KMSG, KernelLog, journal_lines
from gpumon.host.pci import may_sleep, slot_of
from gpumon.makers.nvidia import MAKER
from gpumon.makers.nvidia.cuda_checks import (
    cudnn,
    is_expected,
    judge_build,
    newest,
    toolkits,
    visible,
)
from gpumon.makers.nvidia.kernel_lines import XidLines
from gpumon.makers.nvidia.library import find_library, loaded_version
from gpumon.makers.nvidia.processes import pid_trust
from gpumon.model.error_codes import error_code
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.text.formatting import counted, duration, index_list

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext
    from gpumon.host.kernel_log import KernelLine
    from gpumon.model.snapshot import Gpu

_CONTROL = "/dev/nvidiactl"
_UVM = "/dev/nvidia-uvm"
_MAJOR = 195
"""Of every device file of the driver but those of nvidia-uvm: ``NV_MAJOR_DEVICE_NUMBER``."""
_CONTROL_MINOR = 255
_GPU = re.compile(r"nvidia(\d+)")
_NO_GROUP_NVIDIA = (
    "An administrator must allow access: with the driver's parameter NVreg_DeviceFileMode=0666, "
    "or with a udev rule."
)
_AGAIN = (
    "Start the container with its GPUs (--gpus all). If it lost them, as after `systemctl "
    "daemon-reload`, start it again. A batch system grants GPUs only to a job that requests them "
    "(--gres=gpu:1)."
)
_LIBRARY_FOLDERS = (
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/nvidia",
    "/run/opengl-driver/lib",
)
_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)$")
_MOST_LISTED = 8
"""Errors of the kernel's log."""
_LOG_LINES, _LOG_SECONDS = 1_000_000, 1.0


# The driver


def _module_version(context: DiagnosticContext) -> str | None:
    """Version of the loaded kernel module."""
    return loaded_version(str(context.machine.path("/proc")))


def _taken(context: DiagnosticContext, gpus: str, details: tuple[str, ...]) -> Result | None:
    """The result if a GPU on the bus has the wrong driver, or none."""
    own = context.cards_of(MAKER)
    drivers = {card.driver for card in own}
    if "nouveau" in drivers or "nova_core" in drivers:
        taken = "nouveau" if "nouveau" in drivers else "nova_core"
        return failed(
            f"The kernel's own driver {taken} controls a GPU.",
            f"Install NVIDIA's driver and disable {taken}: write `blacklist {taken}` to a file in "
            "/etc/modprobe.d, then rebuild the initramfs and reboot.",
            *details,
        )
    idle = [card for card in own if card.driver is None]
    if idle and _module_version(context) is not None:
        return warned(
            f"{gpus}; {len(idle)} of NVIDIA's without a driver.",
            "Run `sudo dmesg | grep NVRM` to see why the driver refused the GPU: the driver may be "
            "too old for it, or the open kernel modules do not support it (before Turing).",
            *details,
        )
    return None


@check("kernel module")
def kernel_module(context: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's kernel module is loaded: ``/proc/driver/nvidia/version``."""
    version = _module_version(context)
    if version is not None:
        text = context.machine.text("/proc/driver/nvidia/version") or ""
        kind = "open" if "Open Kernel Module" in text else "proprietary"
        return passed(f"{version}, {kind}.")
    if context.in_wsl:
        return None
    if exists(context.machine.path("/sys/module/nvidia")):
        return unknown("Loaded, but /proc does not report its version.")
    if not context.cards_of(MAKER):
        return None  # Reported already: there is no GPU.
    return failed(
        "The NVIDIA kernel module is not loaded.",
        "Run `sudo modprobe nvidia`. After a kernel upgrade rebuild the module with `sudo dkms "
        "autoinstall`. `sudo dmesg | grep -i nvidia` says why it does not load.",
    )


@check("driver library")
def library(context: DiagnosticContext) -> Result | None:
    """Whether ``libnvidia-ml.so.1`` is there, and of the version of the kernel module.

    Folders with stubs in ``LD_LIBRARY_PATH`` are found too.
    """
    if not is_expected(context) and MAKER.name not in context.driver.libraries:
        return None
    stubs = [
        entry
        for entry in context.machine.environ.get("LD_LIBRARY_PATH", "").split(":")
        if entry.rstrip("/").endswith("/stubs")
    ]
    if stubs:
        return failed(
            f"LD_LIBRARY_PATH contains {stubs[0]}: its libraries are stubs for linking.",
            "Remove that folder from LD_LIBRARY_PATH.",
        )
    if MAKER.name not in context.driver.libraries:
        return failed(
            "The driver's library libnvidia-ml.so.1 was not found.",
            "Install the NVIDIA driver. For a container install the NVIDIA container toolkit, and "
            "start the container with its GPUs (--gpus all).",
        )
    version, module = context.driver.libraries[MAKER.name], _module_version(context)
    if version is None:
        return unknown("libnvidia-ml.so.1 exists, but does not report its version.")
    if module is None:
        return passed(f"libnvidia-ml {version}.")
    if version != module:
        return failed(
            f"libnvidia-ml is {version}, but the loaded kernel module is {module}: the driver was "
            "upgraded while it was running.",
            "Reboot, or end every process on the GPUs and reload the nvidia modules. Start a "
            "container again.",
        )
    return passed(f"libnvidia-ml {version}, the same version as the kernel module.")


@check("CUDA library")
def cuda_library(context: DiagnosticContext) -> Result | None:
    """Whether ``libcuda.so.1``, which CUDA programs load, is of the version of the module."""
    if MAKER.name not in context.driver.libraries:
        return None
    folders = (*context.machine.folders("LD_LIBRARY_PATH"), *_LIBRARY_FOLDERS)
    links = (context.machine.path(f"{folder}/libcuda.so.1") for folder in folders)
    link = next(filter(exists, links), None)
    if link is None:
        return unknown(
            "libcuda.so.1 is not in the usual folders.",
            "If programs do not find it either: start a container with "
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a host install the driver's CUDA part.",
            *unreadable(context.machine, ("LD_LIBRARY_PATH",)),
        )
    shown = context.machine.name(link)
    version = _version_of(link)
    module = _module_version(context)
    if version is None or module is None or version == module:
        return passed(f"{version or 'unknown version'}, {shown}.")
    if "compat" in str(resolved(link)):
        return passed(f"{version} in {shown}, NVIDIA's forward compatibility package.")
    return failed(
        f"{shown} is {version}, but the loaded kernel module is {module}: CUDA programs fail.",
        "Reboot after an upgrade of the driver. Otherwise remove the files of an earlier "
        "installation, or remove their folder from LD_LIBRARY_PATH.",
    )


def _version_of(link: Path) -> str | None:
    match = _VERSION.search(resolved(link).name)
    return match[1] if match else None


# Access


def _has_driver(context: DiagnosticContext) -> bool:
    """Whether device files should exist."""
    return _module_version(context) is not None and not context.in_wsl


def _gpu_files(context: DiagnosticContext) -> list[Path]:
    files = [file for file in context.machine.folder("/dev", "nvidia[0-9]*") if _minor(file) >= 0]
    return sorted(files, key=_minor)


def _minor(file: Path) -> int:
    match = _GPU.fullmatch(file.name)
    return int(match[1]) if match else -1


@check("device files")
def device_files(context: DiagnosticContext) -> Result | None:
    """Whether ``/dev/nvidiactl`` and the files of NVIDIA's GPUs exist, and who may open them."""
    if not _has_driver(context):
        return None
    control, gpus = context.machine.path(_CONTROL), _gpu_files(context)
    if not exists(control) or not gpus:
        missing = _CONTROL if not exists(control) else "/dev/nvidia0"
        return failed(
            f"The driver is loaded, but there is no {missing}.",
            _AGAIN
            if in_container(context)
            else "Run `sudo nvidia-smi` or `sudo nvidia-modprobe -c 0` to create it.",
        )
    return no_permission(context, (control, *gpus), otherwise=_NO_GROUP_NVIDIA) or passed(
        f"You may open {_CONTROL} and the files of {counted(len(gpus), 'GPU')}."
    )


@check("nvidia-uvm")
def unified_memory(context: DiagnosticContext) -> Result | None:
    """Whether ``/dev/nvidia-uvm`` exists: without it nvidia-smi works, and CUDA does not."""
    if not _has_driver(context) or not exists(context.machine.path(_CONTROL)):
        return None
    if exists(context.machine.path(_UVM)):
        return passed(f"{_UVM} exists; CUDA needs it.")
    if in_container(context):
        advice = "Run `nvidia-modprobe -u -c 0` on the host, then start the container again."
    else:
        advice = "Run `sudo nvidia-modprobe -u -c 0` or `sudo modprobe nvidia-uvm`."
    return failed(f"There is no {_UVM}: nvidia-smi works, but CUDA programs do not start.", advice)


@check("cgroup limits")
def device_limits(context: DiagnosticContext) -> Result | None:
    """Whether a cgroup denies device files that their modes allow.

    Version 1 lists the allowed devices (``devices.list``). Version 2 decides by a BPF program that
    cannot be read, so the control file is opened: the kernel returns EPERM if a cgroup refuses,
    EACCES if a mode does. GPU device files are not opened: that would initialise or wake a GPU.
    """
    if not _has_driver(context) or not exists(context.machine.path(_CONTROL)):
        return None
    rules = _device_rules(context)
    if rules is not None and not _allowed(rules, _CONTROL_MINOR):
        return failed(f"The cgroup of this session forbids {_CONTROL}.", _AGAIN)
    for device in (_CONTROL, _UVM):
        if _refused(context, device):
            return failed(
                f"The mode of {device} allows access, but the cgroup of this session does not.",
                _AGAIN,
            )
    minors = [_minor(file) for file in _gpu_files(context)]
    shut = [] if rules is None else [minor for minor in minors if not _allowed(rules, minor)]
    if shut and len(shut) == len(minors):
        return failed("The cgroup of this session allows no GPU.", _AGAIN)
    if shut:
        allowed = index_list(minor for minor in minors if minor not in shut)
        return passed(
            f"The cgroup of this session allows only the device files {allowed}, as a batch system "
            "does.",
        )
    return passed("No cgroup denies you a GPU.")


def _refused(context: DiagnosticContext, device: str) -> bool:
    try:
        context.machine.try_open(context.machine.path(device))
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def _device_rules(context: DiagnosticContext) -> Sequence[str] | None:
    """The devices that version 1 allows; ``None`` if it does not control devices."""
    for line in (context.machine.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "devices" not in controllers.split(","):
            continue
        # Inside a container its own group is the root of the mount.
        for folder in (path.rstrip("/"), ""):
            text = context.machine.text(f"/sys/fs/cgroup/devices{folder}/devices.list")
            if text is not None:
                return text.splitlines()
    return None


def _allowed(rules: Sequence[str], minor: int) -> bool:
    """Whether a rule such as ``c 195:* rwm`` allows to read and write the driver's devices."""
    for rule in rules:
        kind, _, rest = rule.partition(" ")
        numbers, _, access = rest.partition(" ")
        major, _, number = numbers.partition(":")
        if (
            kind in {"a", "c"}
            and major in {"*", str(_MAJOR)}
            and number in {"*", str(minor)}
            and {"r", "w"} <= set(access)
        ):
            return True
    return False


def _foreign_pids(context: DiagnosticContext) -> str | None:
    """What helps if the driver reports PIDs of the host in this container."""
    version = _module_version(context) or context.driver.libraries.get(MAKER.name)
    if not is_expected(context) or pid_trust(version, False).processes:
        return None
    return "upgrade the driver to 570 or later"


# GPUs


@check("persistence mode")
def persistence(context: DiagnosticContext) -> Result | None:
    """Whether the first program on an unused GPU of NVIDIA must wait."""
    own = context.gpus_of(MAKER)
    if context.in_wsl or not own:
        return None
    sys = str(context.machine.path("/sys"))
    server = [
        gpu
        for gpu in own
        if gpu.status is GpuStatus.OK
        and not (gpu.pci_bus_id is not None and may_sleep(gpu.pci_bus_id, sys))
    ]
    if not server:
        return passed("Not needed: these GPUs power down while they are unused.")
    if all(gpu.persistence_mode is None for gpu in server):
        return unknown("The driver does not report it.")
    off = [gpu for gpu in server if gpu.persistence_mode is False]
    if not off:
        return passed("On.")
    return warned(
        f"Off on {gpu_names(off)}: the first program on an unused GPU waits 1 to 3 s, and error "
        "counters and power limits are lost in between.",
        "Run `sudo systemctl enable --now nvidia-persistenced`, or, until the next reboot, `sudo "
        "nvidia-smi -pm 1`.",
    )


@check("work of the SMs")
def profiling(context: DiagnosticContext) -> Result | None:
    """Whether NVIDIA's driver measures how much of a GPU works, and lets you read it.

    This is GPM, which Hopper and later GPUs have.
    """
    gpus = [gpu for gpu in context.gpus_of(MAKER) if gpu.status is GpuStatus.OK]
    if not gpus:
        return None
    reasons = {gpu.index: gpu.unknown.get("sm_active") for gpu in gpus}
    # One sample gives no value yet, but the reason is another one where the driver refuses it.
    can = [gpu for gpu in gpus if reasons[gpu.index] in {None, Unknown.NOT_READ}]
    refused = [gpu for gpu in gpus if reasons[gpu.index] is Unknown.NO_PERMISSION]
    failing = [gpu for gpu in gpus if reasons[gpu.index] is Unknown.NO_ANSWER]
    if refused:
        return warned(
            f"The driver denies it to you on {gpu_names(refused)}.",
            "Run gpumon as root, or ask an administrator whether every user may read performance "
            "counters: that is the option NVreg_RestrictProfilingToAdminUsers=0 of the kernel "
            "module nvidia.",
        )
    if failing:
        return unknown(f"The driver did not answer for {gpu_names(failing)}.")
    if not can:
        return unknown(
            "Not supported: GPM needs GPUs of the Hopper generation or later, and driver 520 or "
            "later.",
        )
    if len(can) == len(gpus):
        return passed("Available (GPM): the page of a GPU shows how much of it works.")
    return passed(f"Available (GPM) on {gpu_names(can)}; the others do not support it.")


@check("reported errors")
def reported_errors(context: DiagnosticContext) -> Result | None:
    """XIDs, which are errors of NVIDIA's GPUs, with their meaning and what to do.

    They are in the kernel log: ``/dev/kmsg``, or where that may not be read the journal, which
    members of the group ``adm`` may read. Where neither can be read, the result has the reason.
    """
    if not context.gpus_of(MAKER) and not context.cards_of(MAKER):
        return None
    xids = _kernel_xids(context)
    if isinstance(xids, str):
        return unknown(xids, "Run `sudo dmesg | grep -i xid`.")
    if not xids:
        return passed("There is no XID in the kernel log.")
    details = _listed(xids, context)
    own = [xid for xid in xids if not error_code(xid.number).passing]
    if not own:
        caused = all(error_code(xid.number).by_program for xid in xids)
        rest = "" if caused else ", or that the driver dealt with"
        return passed(f"There are only errors that programs caused{rest}.", *details)
    return warned(
        f"The GPUs themselves caused {counted(len(own), 'XID')}.",
        f"Follow the advice for each; {MAKER.error_catalogue} has more.",
        *details,
    )


class _Xid(NamedTuple):
    """An XID of the kernel log."""

    number: int
    slot: str
    at: float  # See ``KernelLine``.


def _kernel_xids(context: DiagnosticContext) -> list[_Xid] | str:
    """The XIDs since the machine started, oldest first, or why they are not known."""
    log = KernelLog(str(context.machine.path(KMSG)))
    try:
        return _xids(log.read(_LOG_LINES, _LOG_SECONDS))
    except OSError as error:
        in_journal = journal_lines() if context.machine.path("/") == Path("/") else None
        if in_journal is not None:
            return _xids(in_journal)
        if isinstance(error, PermissionError):
            return (
                "You may not read the kernel log, which contains them: only root may "
                "(kernel.dmesg_restrict), and through journalctl members of the group adm."
            )
        if isinstance(error, FileNotFoundError):
            return f"There is no kernel log ({KMSG}) here, as in most containers: see the host."
        return f"The kernel log, which contains them, cannot be read: {error.strerror or error}."
    finally:
        log.close()


def _xids(lines: Iterable[KernelLine]) -> list[_Xid]:
    parser = XidLines()
    reports = [report for line in lines if (report := parser.feed(line)) is not None]
    return [
        _Xid(report.number, report.slot, report.at)
        for report in reports
        if report.number is not None and report.slot is not None
    ]


def _listed(xids: Sequence[_Xid], context: DiagnosticContext) -> tuple[str, ...]:
    """The newest XID of each number and GPU, one line each, hardware errors first."""
    newest = {(xid.slot, xid.number): xid for xid in xids}
    counts = Counter((xid.slot, xid.number) for xid in xids)
    now = context.machine.uptime()
    ordered = sorted(newest.values(), key=lambda xid: (error_code(xid.number).passing, -xid.at))
    lines = []
    for xid in ordered[:_MOST_LISTED]:
        times = counts[xid.slot, xid.number]
        often = "" if times == 1 else f", {times} times"
        error = error_code(xid.number)
        lines.append(
            f"{_gpu_at(xid.slot, context.gpus)}: {error.label} {duration(now - xid.at)} ago"
            f"{often}: {error.explanation}"
        )
    if len(ordered) > _MOST_LISTED:
        lines.append(f"and {len(ordered) - _MOST_LISTED} more kinds")
    listed = dict.fromkeys(error_code(xid.number) for xid in ordered[:_MOST_LISTED])
    return (*lines, *advice_on(listed))


def _gpu_at(slot: str, gpus: Sequence[Gpu]) -> str:
    for gpu in gpus:
        if gpu.pci_bus_id is not None and slot_of(gpu.pci_bus_id) == slot:
            return f"GPU {gpu.index}"
    return slot


CHECKS = MakerChecks(
    slots={
        "driver": (kernel_module, library, cuda_library),
        "device files": (device_files, unified_memory, device_limits),
        "modes": (persistence,),
        "reports": (profiling, reported_errors),
        "toolkits": (newest, toolkits, cudnn),
        "visible devices": (visible,),
    },
    find_library=find_library,
    is_loaded=lambda context: _module_version(context) is not None,
    fault_on_bus=_taken,
    foreign_pids=_foreign_pids,
    slow="Turn on persistence mode, which keeps the GPUs initialised. If it is on, a GPU may be "
    "faulty: run `sudo dmesg | grep NVRM`.",
    lost="Run `sudo dmesg | grep NVRM` to see what happened. To reset a GPU, end its "
    "processes, then run `sudo nvidia-smi --gpu-reset -i INDEX`.",
    replace="End what uses the GPU, then `sudo nvidia-smi --gpu-reset -i INDEX`: a reset "
    "replaces what is bad.",
    platform="cuda",
    platform_words="CUDA {}",
    computes_when_integrated=lambda _: True,
    judge_build=judge_build,
    # The page "Installation" of docs.jax.dev.
    frameworks={
        "torch": "Run `pip install torch`: on Linux it includes CUDA.",
        "TensorFlow": "Run `pip install 'tensorflow[and-cuda]'`.",
        "JAX": "Run `pip install 'jax[cuda12]'`, or cuda13 for newer drivers.",
    },
)
