"""Checks of access: device files, GPUs and processes for this user, container or job."""

from __future__ import annotations

import errno
import os
import re
import stat
from typing import TYPE_CHECKING

from gpumon.doctor import check, failed, passed, warned
from gpumon.doctor.computing import rocm_versions
from gpumon.doctor.context import exists
from gpumon.host.namespaces import in_initial_pid_namespace
from gpumon.model.makers import Maker
from gpumon.model.process_states import ENDED, STATES
from gpumon.system.users import user_name
from gpumon.text.formatting import counted, gib, gibibytes, index_list

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, PciGpu

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
_MOST_LISTED = 8
"""Processes that have ended."""
_AGAIN = (
    "Start the container with its GPUs (--gpus all). If it lost them, as after `systemctl "
    "daemon-reload`, start it again. A batch system grants GPUs only to a job that requests them "
    "(--gres=gpu:1)."
)
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


def _has_driver(context: DiagnosticContext) -> bool:
    """Whether device files should exist."""
    return context.module_version is not None and not context.in_wsl


def _gpu_files(context: DiagnosticContext) -> list[Path]:
    files = [file for file in context.machine.folder("/dev", "nvidia[0-9]*") if _minor(file) >= 0]
    return sorted(files, key=_minor)


def _minor(file: Path) -> int:
    match = _GPU.fullmatch(file.name)
    return int(match[1]) if match else -1


def in_container(context: DiagnosticContext) -> bool:
    """Whether this is a PID namespace other than the host's."""
    return not in_initial_pid_namespace(str(context.machine.path("/proc")))


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
    return _no_permission(context, (control, *gpus), otherwise=_NO_GROUP_NVIDIA) or passed(
        f"You may open {_CONTROL} and the files of {counted(len(gpus), 'GPU')}."
    )


def _no_permission(
    context: DiagnosticContext,
    files: Sequence[Path],
    effect: str = "",
    *,
    otherwise: str,
    contained: bool = False,
) -> Result | None:
    """The result if this user may not open one of these device files.

    If no group may, ``otherwise`` says what to do. ``contained`` is for files whose group must be
    named when the container is started.
    """
    barred = [file for file in files if not os.access(file, os.R_OK | os.W_OK)]
    if not barred:
        return None
    names = ", ".join(context.machine.name(file) for file in barred)
    number = barred[0].stat().st_gid
    return failed(
        f"You have no permission to open {names}{effect}.",
        f"Start the container with --group-add {number}, the group of the file on the host."
        if contained
        else _how_to_get_in(barred[0], otherwise),
        *(
            f"{context.machine.name(file)}  {stat.filemode(file.stat().st_mode)} "
            f"group {_group(file)}"
            for file in barred
        ),
    )


def _group(file: Path) -> str:
    import grp

    number = file.stat().st_gid
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _how_to_get_in(file: Path, otherwise: str) -> str:
    group = _group(file)
    if file.stat().st_mode & 0o060 != 0o060 or group in {"root", "0"}:
        return otherwise
    if _is_member(group):
        return f"You are in the group {group}, but not in this session: log in again."
    return (
        f"Ask to be added to the group {group} (`sudo usermod -aG {group} $USER`), then log in "
        "again."
    )


def _is_member(group: str) -> bool:
    """Whether the system has this user in a group, as it is after ``usermod`` before a login."""
    import grp

    try:
        return user_name(os.getuid()) in grp.getgrnam(group).gr_mem
    except KeyError:
        return False


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


def used_gpus(context: DiagnosticContext, maker: Maker | None = None) -> list[PciGpu]:
    """The GPUs of AMD and Intel that gpumon shows, or those of one of the two makers."""
    return [
        card
        for card in context.cards
        if card.maker is not Maker.NVIDIA and card.shown_by_gpumon and card not in context.hidden
        if maker in (None, card.maker)
    ]


@check("render nodes")
def render_nodes(context: DiagnosticContext) -> Result | None:
    """Whether you may open ``/dev/dri/renderD*`` of AMD's and Intel's GPUs, or which group may.

    The files are not opened: that would wake a sleeping GPU.
    """
    cards = [card for card in used_gpus(context) if card.render_nodes]
    if not cards or context.in_wsl:
        return None
    files = [
        context.machine.path(f"/dev/dri/{node}") for card in cards for node in card.render_nodes
    ]
    there = [file for file in files if exists(file)]
    contained = in_container(context)
    if not there or (len(there) < len(files) and not contained):
        missing = context.machine.name(next(file for file in files if file not in there))
        return failed(
            f"The driver is loaded, but there is no {missing}: programs cannot use the GPU.",
            _CONTAINER[cards[0].maker]
            if contained
            else "Run `sudo udevadm trigger` to create the device files.",
        )
    effect = ": your programs cannot use the GPU"
    return _no_permission(
        context, there, effect, otherwise=_NO_GROUP, contained=contained
    ) or passed(f"You may open {', '.join(context.machine.name(file) for file in there)}.")


@check("/dev/kfd")
def compute_driver(context: DiagnosticContext) -> Result | None:
    """Whether you may open ``/dev/kfd``, which ROCm needs, and whether it supports a GPU.

    The second is read from ``/sys/class/kfd``.
    """
    cards = used_gpus(context, Maker.AMD)
    rocm = bool(rocm_versions(context.machine))
    if not cards or context.in_wsl or (not rocm and all(card.integrated for card in cards)):
        return None
    file = context.machine.path(_KFD)
    if not exists(file):
        complain = failed if rocm else warned
        return complain(
            f"There is no {_KFD}: programs draw, but ROCm's programs do not start.",
            _CONTAINER[Maker.AMD]
            if in_container(context)
            else "The kernel may be built without CONFIG_HSA_AMD, or the GPU be older than what "
            "KFD supports: `sudo dmesg | grep kfd` says which.",
        )
    effect, contained = ": ROCm's programs do not start", in_container(context)
    barred = _no_permission(context, [file], effect, otherwise=_NO_GROUP, contained=contained)
    if barred:
        return barred
    numbers = [
        context.machine.text(f"{context.machine.name(folder)}/gpu_id")
        for folder in context.machine.folder(_NODES, "*")
    ]
    # A number that cannot be read is that of a GPU that this cgroup may not use; 0 is a processor.
    if numbers and all(number is not None and number.strip() == "0" for number in numbers):
        return warned(
            "You may open it, but KFD supports no GPU of this machine: ROCm's programs find none.",
            "Run `sudo dmesg | grep kfd`: the GPU may be too old, or its slot lack PCIe atomics.",
        )
    return passed(f"You may open {_KFD}, which ROCm needs.")


@check("process numbers")
def pid_namespace(context: DiagnosticContext) -> Result | None:
    """The PID namespace, and which PIDs NVIDIA's driver reports in it."""
    if not context.gpus and not _has_driver(context):
        return None
    if not in_container(context):
        return passed("This is the host's PID namespace: every process can be identified.")
    from gpumon.makers.nvidia.processes import pid_trust

    trust = pid_trust(context.module_version or context.driver.library_version, False)
    if context.expects_nvidia and not trust.processes:
        return warned(
            "This is a container, and the driver reports PIDs of the host, which differ here: "
            "processes have no name.",
            "Run gpumon on the host, start the container with --pid=host, or upgrade the driver "
            "to 570 or later.",
        )
    return warned(
        "This is a container: gpumon sees only its processes, and other memory has no owner.",
        "To see all processes, run gpumon on the host or start the container with --pid=host.",
    )


@check("other users")
def hidden_processes(context: DiagnosticContext) -> Result | None:
    """Whether ``/proc`` hides the processes of other users (``hidepid``, proc(5))."""
    mounts = context.machine.text("/proc/self/mounts")
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
        return passed("/proc shows their processes.")
    if context.machine.root_user:
        return passed(f"/proc hides processes (hidepid={hiding}), but not from root.")
    group = known.get("gid")
    if group is not None and int(group) in os.getgroups():
        return passed(f"/proc hides processes (hidepid={hiding}), but not from your group.")
    through = (
        "" if group in {None, "0"} else f", or ask to be added to the group with the ID {group}"
    )
    return warned(
        f"/proc hides their processes (hidepid={hiding}): the owners of memory are unknown.",
        f"Run gpumon with sudo{through}.",
    )


@check("ended processes")
def ended_processes(context: DiagnosticContext) -> Result | None:
    """Whether the driver lists processes that have ended, and what they hold."""
    snapshot = context.driver.snapshot
    if snapshot is None or not snapshot.processes:
        return None
    ended = [process for process in snapshot.processes if process.state == ENDED]
    if not ended:
        return passed("The driver lists no process that has ended.")
    lines = [
        f"{process.id.pid} {STATES[ENDED].about}, on GPU {index_list(process.gpu_indices)}"
        + (
            ""
            if process.memory_used is None
            else f", with {gibibytes(process.memory_used)} {gib()}"
        )
        for process in ended[:_MOST_LISTED]
    ]
    return warned(
        f"The driver still lists {counted(len(ended), 'process', 'es')} that ended.",
        "Memory comes back when all that holds it has ended: `sudo fuser -v /dev/nvidia*` shows "
        "what has the GPUs open. If nothing has, reset the GPU or reboot.",
        *lines,
    )


@check("process lists")
def process_lists(context: DiagnosticContext) -> Result | None:
    """A note: whose processes gpumon sees on AMD's and Intel's GPUs.

    [makers.md](makers.md) has more.
    """
    makers = [maker for maker in (Maker.AMD, Maker.INTEL) if context.gpus_of(maker)]
    if not makers:
        return None
    whose = " and ".join(f"{maker.value}'s" for maker in makers)
    if context.machine.root_user:
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
