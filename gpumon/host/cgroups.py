"""Which container and which Slurm job a process belongs to, as its cgroup paths tell it.

Container runtimes and Slurm put their processes into cgroups whose names follow fixed patterns. The
kernel shows everybody those names, so this works for the processes of other users too. Where
containers are nested, the innermost is told.
"""

from __future__ import annotations

import re
from functools import lru_cache

from msgspec import Struct

from gpumon.model import Container

_ID = r"[0-9a-f]{64}"

_NAMED = re.compile(
    rf"(docker|libpod|libpod-payload|cri-containerd|containerd|nerdctl|crio)-({_ID})(?:\.scope)?"
)
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    # The part of a systemd service that `podman run --cgroups=split` gives to the container.
    "libpod-payload": "podman",
    "cri-containerd": "containerd",
    "containerd": "containerd",
    "nerdctl": "containerd",
    "crio": "cri-o",
}

_BARE = re.compile(rf"{_ID}|[0-9a-f]{{32}}-\d+")
"""What runtimes without systemd call a cgroup: the id. The second form is Fargate's."""
_PARENTS = {
    "docker": "docker",
    # The name spaces of containerd that nerdctl and Kubernetes use.
    "default": "containerd",
    "k8s.io": "containerd",
    "ecs": "ecs",
}
"""Names of cgroups that hold such a cgroup, and the runtime that makes them."""

_POD = re.compile(
    r"(?:[\w.-]+-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?"
)
"""A pod, under any prefix (``kubepods-burstable-``, ``kubelet-kubepods-besteffort-``). A slice's
name has underscores for dashes. A pod that a file on the node describes has a hash for its UID."""

_UNEXPANDED = re.compile(rf"\.slice:([\w-]+):({_ID})")
"""How containerd names a cgroup when the kubelet speaks of slices and runc knows no systemd."""

_LXC = re.compile(r"lxc\.payload\.(.+)")
_LXC_PARENTS = ("lxc", "lxc.payload")

_MACHINE = re.compile(r"machine-(.+)\.scope|systemd-nspawn@(.+)\.service")
_LIBVIRT_LXC = re.compile(r"lxc-\d+-(.+)")
_ESCAPED = re.compile(rb"\\x([0-9a-f]{2})")
"""systemd's escape of a character that a unit's name may not have: systemd-escape(1)."""

_STEP = r"[0-9]{1,10}(?:\+[0-9]{1,10})?|batch|extern|interactive"
"""The second number is that of a component of a heterogeneous job."""
_SLURM = re.compile(
    # Of the plugins cgroup/v1 and cgroup/v2, each with one slurmd or several on the node.
    r"/(?:slurm(?:_[^/]+)?/uid_[0-9]+|(?:[^/]+_)?slurmstepd\.scope)"
    rf"/job_([0-9]{{1,10}})(?:/step_({_STEP}))?(?:/|$)"
)
_USER = re.compile(r"/user-([0-9]{1,10})\.slice(?:/|$)")

_SPECIAL_STEPS = {
    0xFFFFFFFA: "interactive",
    0xFFFFFFFB: "batch",
    0xFFFFFFFC: "extern",
}
"""Numbers that stand for steps without one: ``SLURM_*_STEP`` of slurm/slurm.h."""
_MAX_STEP = 0xFFFFFFF0
"""``SLURM_MAX_NORMAL_STEP_ID`` of the same."""


class CgroupFacts(Struct, frozen=True):
    """What the cgroup paths of a process tell. ``None`` is unknown, or none.

    Attributes:
        container: The innermost container around it; the pod by its UID.
        slurm_job: The number of its Slurm job; in an array each job has one of its own.
        slurm_step: The step of that job: a number, ``batch``, ``extern`` or ``interactive``.
        slice_uid: The user in whose slice it is: the owner of a rootless container, whatever user
            the process became inside.
    """

    container: Container | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    slice_uid: int | None = None


@lru_cache(maxsize=64)  # the processes of a job or of a container share theirs
def cgroup_facts(text: str) -> CgroupFacts:
    """Read the content of ``/proc/PID/cgroup``, of version 1, 2 or both.

    A process in the cgroup name space's own root, as every process is that shares gpumon's
    container, shows nothing of the container around it.

    Args:
        text: Lines of ``hierarchy:controllers:path``; what is no such line is passed over.
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
        return CgroupFacts(container, slice_uid=slice_uid)
    return CgroupFacts(container, slurm[1], step_name(slurm[2]), slice_uid)


def step_name(step: str | None) -> str | None:
    """The name of a Slurm step given by its number or its name; ``None`` for what is neither."""
    if step is None or re.fullmatch(_STEP, step) is None:
        return None
    if not step.isdecimal():
        return step
    number = int(step)
    return str(number) if number <= _MAX_STEP else _SPECIAL_STEPS.get(number)


def _paths(text: str) -> dict[str, None]:
    """The different paths, each once: version 1 repeats one for every controller."""
    paths: dict[str, None] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        _, _, path = rest.partition(":")
        if path.startswith("/"):
            path = path.removesuffix(" (deleted)")
            paths[_UNEXPANDED.sub(r".slice/\1-\2.scope", path)] = None
    return paths


def _container(path: str) -> tuple[Container | None, int]:
    """The innermost container of a path, and how deep in the path it was found."""
    parts = path.split("/")
    at_conmon = False
    for at in range(len(parts) - 1, 0, -1):
        part, parent, child = parts[at], parts[at - 1], parts[at + 1 : at + 2]
        # The watcher of a CRI-O container sits in the pod's cgroup, yet runs on the host.
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
    """A container that systemd's list of machines knows: systemd-nspawn's, or libvirt's LXC."""
    machine = _MACHINE.fullmatch(part)
    # What runs a container is in its unit too, beside its content.
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
