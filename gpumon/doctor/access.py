"""Checks of access: processes for this user, container or job, and the files of a device."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from gpumon.doctor import check, checks_of, failed, passed, warned
from gpumon.host.procfs import in_initial_pid_namespace
from gpumon.model.makers import first_maker, makers, makers_of
from gpumon.model.process_states import ENDED, STATES
from gpumon.system.system import user_name
from gpumon.text.formatting import counted, gib, gibibytes, index_list

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext

_MOST_LISTED = 8
"""Processes that have ended."""


def in_container(context: DiagnosticContext) -> bool:
    """Whether this is a PID namespace other than the host's."""
    return not in_initial_pid_namespace(str(context.machine.path("/proc")))


def no_permission(
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


@check("process numbers")
def pid_namespace(context: DiagnosticContext) -> Result | None:
    """The PID namespace, and which PIDs the driver reports in it."""
    checks = [checks_of(maker) for maker in makers()]
    loaded = not context.in_wsl and any(maker.is_loaded(context) for maker in checks)
    if not context.gpus and not loaded:
        return None
    if not in_container(context):
        return passed("This is the host's PID namespace: every process can be identified.")
    for maker in checks:
        if (remedy := maker.foreign_pids(context)) is not None:
            return warned(
                "This is a container, and the driver reports PIDs of the host, which differ here: "
                "processes have no name.",
                f"Run gpumon on the host, start the container with --pid=host, or {remedy}.",
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
    held = {index for process in ended for index in process.gpu_indices}
    owners = makers_of([gpu for gpu in snapshot.gpus if gpu.index in held])
    files = " ".join(f"{maker.device_prefix}*" for maker in owners or (first_maker(),))
    return warned(
        f"The driver still lists {counted(len(ended), 'process', 'es')} that ended.",
        (
            f"Memory is freed when all processes that hold it have ended: `sudo fuser -v {files}` "
            "shows which have the GPUs open. If none has, reset the GPU or reboot."
        ),
        *lines,
    )
