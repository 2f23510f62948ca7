"""Finds the container and the Slurm job of a process from its cgroup paths.

Container runtimes and Slurm put processes into cgroups with names of fixed patterns. All users can
read these names, so this also works for processes of other users. Of nested containers, the
innermost counts.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from gpumon.model.processes import Container

_ID = r"[0-9a-f]{64}"

_NAMED = re.compile(
    rf"(docker|libpod|libpod-payload|cri-containerd|containerd|nerdctl|crio)-({_ID})(?:\.scope)?"
)
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    # The container's part of a systemd service after `podman run --cgroups=split`.
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
}

_BARE = re.compile(rf"{_ID}|[0-9a-f]{{32}}-\d+")
"""The id, which runtimes without systemd use as the cgroup's name. The second form is Fargate's."""
_PARENTS = {
    "docker": "docker",
    # The containerd namespaces of nerdctl and Kubernetes.
    "default": "containerd",
    "k8s.io": "containerd",
    "ecs": "ecs",
}
"""Names of the parent cgroups, with the runtime that creates them."""

_POD = re.compile(
    r"(?:[\w.-]+-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
"""A pod with any prefix (``kubepods-burstable-``, ``kubelet-kubepods-besteffort-``). The name of a
slice has underscores in place of dashes. The UID of a static pod, from a file, is a hash."""

_UNEXPANDED = re.compile(rf"\.slice:([\w-]+):({_ID})")
"""containerd's name of a cgroup if the kubelet uses slices but runc does not use systemd."""

_LXC = re.compile(r"lxc\.payload\.(.+)")
_LXC_PARENTS = ("lxc", "lxc.payload")

_MACHINE = re.compile(r"machine-(.+)\.scope|systemd-nspawn@(.+)\.service")
_LIBVIRT_LXC = re.compile(r"lxc-\d+-(.+)")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
"""systemd's escape of a character in a unit's name: systemd-escape(1)."""

_STEP = r"[0-9]{1,10}(?:\+[0-9]{1,10})?|batch|extern|interactive"
"""The second number is the component of a heterogeneous job."""
_SLURM = re.compile(
    # The plugins cgroup/v1 and cgroup/v2, with one or several slurmd on the node.
    r"/(?:slurm(?:_[^/]+)?/uid_[0-9]+|(?:[^/]+_)?slurmstepd\.scope)"
    rf"/job_([0-9]{{1,10}})(?:/step_({_STEP}))?(?:/|$)"
)
_USER = re.compile(r"/user-([0-9]{1,10})\.slice(?:/|$)")

_SPECIAL_STEPS = {
    0xFFFFFFFA: "interactive",
    0xFFFFFFFB: "batch",
    0xFFFFFFFC: "extern",
}
"""Special step numbers: ``SLURM_*_STEP`` of slurm/slurm.h."""
_MAX_STEP = 0xFFFFFFF0
"""``SLURM_MAX_NORMAL_STEP_ID`` of slurm/slurm.h."""


class CgroupInfo(Struct, frozen=True):
    """The information in the cgroup paths of a process. ``None`` is unknown or absent.

    Attributes:
        container: The innermost container; a pod by its UID.
        slurm_job: The number of its Slurm job; each job of an array has its own.
        slurm_step: The step of that job: a number, ``batch``, ``extern`` or ``interactive``.
        slice_uid: UID of the user slice: the owner of a rootless container, whatever the UID inside
            is.
    """

    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    slice_uid: int | None = None


@lru_cache(maxsize=64)  # the processes of a job or of a container share theirs
def cgroup_info(text: str) -> CgroupInfo:
    """Parse ``/proc/PID/cgroup`` of version 1, 2 or both.

    If gpumon itself runs in a container, processes of the same container show no path of it,
    because they are in the root of the cgroup namespace.

    Args:
        text: Lines of ``hierarchy:controllers:path``; other lines are ignored.
    """
    container: Container | None = None
    depth = -1
    slurm: re.Match[str] | None = None
    slice_uid: int | None = None
    for path in _paths(text):
        found, at = _container(path)
        if found is not None and at > depth:
            container, depth = found, at
        job = _SLURM.search(path)
        if job is not None and (slurm is None or slurm[2] is None):
            slurm = job
        user = _USER.search(path)
        if user is not None:
            slice_uid = int(user[1])
    if slurm is None:
        return CgroupInfo(container, slice_uid=slice_uid)
    return CgroupInfo(container, slurm[1], step_name(slurm[2]), slice_uid)


def step_name(step: str | None) -> str | None:
    """The name of a Slurm step from its number or name; ``None`` for anything else."""
    if step is None or re.fullmatch(_STEP, step) is None:
        return None
    if not step.isdecimal():
        return step
    number = int(step)
    return str(number) if number <= _MAX_STEP else _SPECIAL_STEPS.get(number)


def _paths(text: str) -> dict[str, None]:
    """The distinct paths: version 1 repeats a path for every controller."""
    paths: dict[str, None] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        _, _, path = rest.partition(":")
        if path.startswith("/"):
            path = path.removesuffix(" (deleted)")
            paths[_UNEXPANDED.sub(r".slice/\1-\2.scope", path)] = None
    return paths


def _container(path: str) -> tuple[Container | None, int]:
    """The innermost container of a path, and its depth in the path."""
    parts = path.split("/")
    at_conmon = False
    for at in range(len(parts) - 1, 0, -1):
        part, parent, child = parts[at], parts[at - 1], parts[at + 1 : at + 2]
        # conmon of a CRI-O container is in the pod's cgroup but runs on the host.
        at_conmon = at_conmon or part.startswith("crio-conmon-")
        pod = _POD.fullmatch(part)
        if pod is not None and not at_conmon:
            return Container("kubernetes", pod=_uid(pod)), at
        container = _lxc(part, parent) or _oci(parts, at) or _machine(part, child)
        if container is not None:
            return container, at
    return None, -1


def _oci(parts: list[str], at: int) -> Container | None:
    part, outside = parts[at], parts[at - 1 : 0 : -1]
    named = _NAMED.fullmatch(part)
    if named is None and _BARE.fullmatch(part) is None:
        return None
    pod = next(filter(None, map(_POD.fullmatch, outside[:1])), None)
    if named is not None:
        runtime, id_ = _RUNTIMES[named[1]], named[2]
    elif pod is not None:
        runtime, id_ = "kubernetes", part
    else:
        known = (_PARENTS[name] for name in outside if name in _PARENTS)
        runtime, id_ = next(known, "container"), part
    return Container(runtime, id_, pod=None if pod is None else _uid(pod))


def _lxc(part: str, parent: str) -> Container | None:
    if parent in _LXC_PARENTS and part not in ("", "."):
        return Container("lxc", part, part)
    payload = _LXC.fullmatch(part)
    return None if payload is None else Container("lxc", payload[1], payload[1])


def _machine(part: str, child: list[str]) -> Container | None:
    """A container that systemd registers as a machine: systemd-nspawn's, or libvirt's LXC."""
    machine = _MACHINE.fullmatch(part)
    # The supervisor of a container is in its unit too.
    if machine is None or child == ["supervisor"]:
        return None
    escaped = (machine[1] or machine[2]).encode(errors="replace")
    name = _ESCAPED.sub(lambda code: bytes.fromhex(code[1].decode()), escaped).decode(
        errors="replace"
    )
    if name.startswith("qemu-"):
        return None
    libvirt = _LIBVIRT_LXC.fullmatch(name)
    if libvirt is not None:
        return Container("lxc", libvirt[1], libvirt[1])
    return Container("systemd-nspawn", name, name)


def _uid(pod: re.Match[str]) -> str:
    return pod[1].replace("_", "-")
