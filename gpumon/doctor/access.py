"""Checks of access: device files, GPUs and processes for this user, container or job."""

from __future__ import annotations

import errno
import os
import re
from typing import TYPE_CHECKING

from gpumon.doctor.messages import index_list
from gpumon.doctor.result import failed, passed, warned
from gpumon.host.namespaces import in_initial_pid_namespace, pid_trust

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result

_CONTROL = "/dev/nvidiactl"
_UVM = "/dev/nvidia-uvm"
_MAJOR = 195
"""Of every device file of the driver but those of nvidia-uvm: ``NV_MAJOR_DEVICE_NUMBER``."""
_CONTROL_MINOR = 255
_CARD = re.compile(r"nvidia(\d+)")

_AGAIN = (
    "Start the container with its cards (--gpus all); one that had them and lost them, as after "
    "`systemctl daemon-reload`, must be started again. A batch system grants cards only inside a "
    "job that asks for them (--gres=gpu:1)."
)


def _has_driver(case: DiagnosticContext) -> bool:
    """Whether device files should exist."""
    return case.module_version is not None and not case.in_wsl


def _card_files(case: DiagnosticContext) -> list[Path]:
    files = [file for file in case.machine.folder("/dev", "nvidia[0-9]*") if _minor(file) >= 0]
    return sorted(files, key=_minor)


def _minor(file: Path) -> int:
    match = _CARD.fullmatch(file.name)
    return int(match[1]) if match else -1


def _in_container(case: DiagnosticContext) -> bool:
    return not in_initial_pid_namespace(str(case.machine.path("/proc")))


def device_files(case: DiagnosticContext) -> Result | None:
    """Whether the driver's device files exist, and who may open them."""
    name = "device files"
    if not _has_driver(case):
        return None
    control, cards = case.machine.path(_CONTROL), _card_files(case)
    if not control.exists() or not cards:
        missing = _CONTROL if not control.exists() else "/dev/nvidia0"
        return failed(
            name,
            f"The driver is loaded, but there is no {missing}.",
            _AGAIN
            if _in_container(case)
            else "`sudo nvidia-smi` makes them; `sudo nvidia-modprobe -c 0` does, too.",
        )
    barred = [file for file in (control, *cards) if not os.access(file, os.R_OK | os.W_OK)]
    if barred:
        names = ", ".join(case.machine.name(file) for file in barred)
        verb = "are" if len(barred) > 1 else "is"
        return failed(
            name,
            f"{names} {verb} closed to you.",
            _how_to_get_in(barred[0]),
            *(f"{case.machine.name(file)}  {_rights(file)}" for file in barred),
        )
    return passed(name, f"{_CONTROL} and {len(cards)} of cards, all open to you.")


def _group(file: Path) -> str:
    import grp

    number = file.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _rights(file: Path) -> str:
    import stat

    return f"{stat.filemode(file.stat().st_mode)} group {_group(file)}"


def _how_to_get_in(file: Path) -> str:
    group = _group(file)
    if file.stat().st_mode & 0o060 == 0o060 and group not in {"root", "0"}:
        return (
            f"Ask to be put into the group {group} (`sudo usermod -aG {group} $USER`), then log "
            "in again."
        )
    return (
        "The administrator opens them: the driver's parameter NVreg_DeviceFileMode=0666, or a rule "
        "of udev."
    )


def unified_memory(case: DiagnosticContext) -> Result | None:
    """Whether CUDA finds nvidia-uvm, without which no CUDA program starts."""
    name = "nvidia-uvm"
    if not _has_driver(case) or not case.machine.path(_CONTROL).exists():
        return None
    if case.machine.path(_UVM).exists():
        return passed(name, f"{_UVM} is there, as CUDA needs it.")
    if _in_container(case):
        advice = "Start the container again with its cards (--gpus all), once the host has it."
    else:
        advice = "`sudo nvidia-modprobe -u -c 0`, or `sudo modprobe nvidia-uvm`."
    return failed(
        name, f"There is no {_UVM}: nvidia-smi works, CUDA programs do not start.", advice
    )


def device_limits(case: DiagnosticContext) -> Result | None:
    """Whether a cgroup denies device files that their modes would allow.

    Version 1 lists the allowed devices. Version 2 decides by a BPF program that cannot be read, so
    the control file is opened: the kernel returns EPERM if a cgroup refuses, EACCES if a mode does.
    GPU device files are not opened: that would initialise or wake a GPU.
    """
    name = "cgroup limits"
    if not _has_driver(case) or not case.machine.path(_CONTROL).exists():
        return None
    rules = _device_rules(case)
    if rules is not None and not _allowed(rules, _CONTROL_MINOR):
        return failed(name, f"The cgroup of this session forbids {_CONTROL}.", _AGAIN)
    for device in (_CONTROL, _UVM):
        if _refused(case, device):
            return failed(
                name,
                f"The mode of {device} allows it, but the cgroup of this session does not.",
                _AGAIN,
            )
    minors = [_minor(file) for file in _card_files(case)]
    shut = [] if rules is None else [minor for minor in minors if not _allowed(rules, minor)]
    if shut and len(shut) == len(minors):
        return failed(name, "The cgroup of this session allows no card.", _AGAIN)
    if shut:
        allowed = index_list(minor for minor in minors if minor not in shut)
        return passed(
            name,
            f"Cards by the number of their file: {allowed}; the others are not "
            "for this session, as under a batch system.",
        )
    return passed(name, "None that keep a card from you.")


def _refused(case: DiagnosticContext, device: str) -> bool:
    try:
        case.machine.try_open(case.machine.path(device))
    except OSError as error:
        return error.errno == errno.EPERM
    return False


def _device_rules(case: DiagnosticContext) -> Sequence[str] | None:
    """The devices that version 1 allows; ``None`` if it does not control devices."""
    for line in (case.machine.text("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if "devices" not in controllers.split(","):
            continue
        # Inside a container its own group is the root of the mount.
        for folder in (path.rstrip("/"), ""):
            text = case.machine.text(f"/sys/fs/cgroup/devices{folder}/devices.list")
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


def pid_namespace(case: DiagnosticContext) -> Result | None:
    """Whether the driver's PIDs mean the same processes here."""
    name = "process numbers"
    if not case.gpus and not _has_driver(case):
        return None
    if not _in_container(case):
        return passed(name, "The machine's own: every process can be named.")
    trust = pid_trust(case.module_version or case.driver.library_version, False)
    if not trust.processes:
        return warned(
            name,
            "This is a container, and this driver tells the host's numbers, which mean others "
            "here: processes stand without a name.",
            "Run gpumon on the host, start the container with --pid=host, or upgrade the driver "
            "to 570 or later.",
        )
    return warned(
        name,
        "This is a container: only its own processes are seen, and memory that others hold has no "
        "owner here.",
        "To see everybody, run gpumon on the host or start the container with --pid=host.",
    )


def hidden_processes(case: DiagnosticContext) -> Result | None:
    """Whether ``/proc`` hides the processes of other users (``hidepid``, proc(5))."""
    name = "other users"
    mounts = case.machine.text("/proc/self/mounts")
    if mounts is None:
        return None
    options: list[str] = []
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and fields[1] == "/proc":
            options = fields[3].split(",")
    known = dict(option.partition("=")[::2] for option in options)
    hiding = known.get("hidepid", "0")
    if hiding in {"0", "off"}:
        return passed(name, "Shown by /proc.")
    if case.machine.root_user:
        return passed(name, f"Hidden from others (hidepid={hiding}), not from root.")
    group = known.get("gid")
    if group is not None and int(group) in os.getgroups():
        return passed(name, f"Hidden from others (hidepid={hiding}), not from your group.")
    through = "" if group in {None, "0"} else f", or ask to be put into the group number {group}"
    return warned(
        name,
        f"/proc hides them (hidepid={hiding}): the owners of memory are unknown.",
        f"Run gpumon with sudo{through}.",
    )
