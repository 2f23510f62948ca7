"""Finds the container and the Slurm job of a process from its cgroup paths, and containers' names.

Container runtimes and Slurm put processes into cgroups with names of fixed patterns. All users can
read these names, so this also works for processes of other users. Of nested containers, the
innermost counts.

The names of containers are in the files and sockets of the container runtimes. Most of them are
readable by root only, and all of them may be missing, broken or huge: then the container is shown
with its id.
"""

from __future__ import annotations

import os
import re
from contextlib import closing
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from gpumon.model.processes import Container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
    # Slurm 26.05 names the folder of a job by an identifier that never occurs again, its SLUID,
    # unless CgroupJobIdPaths is set: cgroup.conf(5).
    rf"/(?:job_([0-9]{{1,10}})|(?:job_)?(s[0-9A-Z]{{13}}))(?:/step_({_STEP}))?(?:/|$)"
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
    """The information in the cgroup paths of a process. ``None`` is unknown or absent."""

    container: Container | None = None  # the innermost; a pod by its UID
    slurm_job: str | None = None  # its number; each job of an array has its own
    slurm_step: str | None = None  # a number, ``batch``, ``extern`` or ``interactive``
    slurm_sluid: str | None = None  # the identifier of its job in place of the number
    # UID of the user slice: the owner of a rootless container, whatever the UID inside is.
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
        if job is not None and (slurm is None or slurm[3] is None):
            slurm = job
        user = _USER.search(path)
        if user is not None:
            slice_uid = int(user[1])
    if slurm is None:
        return CgroupInfo(container, slice_uid=slice_uid)
    return CgroupInfo(container, slurm[1], step_name(slurm[3]), slurm[2], slice_uid)


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


RETRY_SECONDS = 60.0
"""Seconds before a failed look-up is retried."""

_DOCKER_SECONDS = 1.0
"""Timeout for Docker, which responds in milliseconds unless it hangs."""
_FILE_BYTES = 8 * 2**20
_KEPT = 4096

_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""The name of a pod: a DNS subdomain, RFC 1123."""

_T = TypeVar("_T")


class _DockerConfig(Struct):
    """The used part of ``config.v2.json``."""

    name: str = msgspec.field(name="Name")


class _DockerContainer(Struct):
    """The used part of an entry of Docker's ``GET /containers/json``."""

    id: str = msgspec.field(name="Id")
    names: list[str] = msgspec.field(name="Names")


class _StoredContainer(Struct):
    """The used part of an entry of ``containers.json`` of containers/storage."""

    id: str
    names: list[str] = []


class ContainerNames:
    """Finds the names of containers and pods. Not thread-safe.

    Found names are kept; failed look-ups are retried after ``RETRY_SECONDS``.

    Args:
        root: Where the machine's file system is mounted.
        docker_patience: Seconds to wait for Docker.
    """

    def __init__(self, root: str = "/", docker_patience: float = _DOCKER_SECONDS) -> None:
        self._root = root.rstrip("/")
        self._docker_patience = docker_patience
        self._uid = os.geteuid()
        self._docker: dict[str, tuple[str | None, float]] = {}
        self._running = _Listing(self._running_containers)
        self._pods = _Listing(self._logged_pods)
        self._stores: dict[str, _Listing] = {}

    def named(
        self,
        container: Container,
        now: float,
        *,
        slice_uid: int | None = None,
        host_name: str | None = None,
    ) -> Container:
        """The same container with its name, if that can be found.

        Args:
            container: The container from its cgroup, with the UID of its pod.
            now: Seconds on the monotonic clock.
            slice_uid: UID of the user slice: a rootless container is in that user's store.
            host_name: ``HOSTNAME`` in the environment of the process.
        """
        if container.pod is not None:
            logged = self._pods.get(container.pod, now)
            if logged is not None:
                namespace, _, pod = logged.partition("_")
                return msgspec.structs.replace(container, pod=pod, namespace=namespace)
            name = _pod_by_host_name(host_name)
            return container if name is None else msgspec.structs.replace(container, pod=name)
        if container.id is None or container.name is not None:
            return container
        if container.runtime == "podman":
            name = self._podman_name(container.id, slice_uid, now)
            return container if name is None else msgspec.structs.replace(container, name=name)
        if container.runtime in ("docker", "ecs", "container"):
            name = self._docker_name(container.id, now)
            # An id alone does not tell the runtime, unless Docker knows the id.
            runtime = "docker" if container.runtime == "container" else container.runtime
            if name is not None:
                return msgspec.structs.replace(container, runtime=runtime, name=name)
        return container

    def _docker_name(self, id_: str, now: float) -> str | None:
        name, again_at = self._docker.get(id_, (None, now))
        if name is None and now >= again_at:
            name = self._docker_file(id_) or self._running.get(id_, now)
            if len(self._docker) >= _KEPT:
                self._docker.clear()
            self._docker[id_] = name, now + RETRY_SECONDS
        return name

    def _docker_file(self, id_: str) -> str | None:
        path = f"{self._root}/var/lib/docker/containers/{id_}/config.v2.json"
        config = _decoded(_read(path), _DockerConfig)
        return None if config is None else config.name.lstrip("/") or None

    def _running_containers(self) -> Mapping[str, str] | None:
        """Names by id from the sockets of Docker and of rootless Docker."""
        names: dict[str, str] | None = None
        for path in ("var/run/docker.sock", f"run/user/{self._uid}/docker.sock"):
            answer = _ask(f"{self._root}/{path}", "/containers/json", self._docker_patience)
            running = _decoded(answer, list[_DockerContainer])
            if running is not None:
                names = names or {}
                names.update((each.id, each.names[0].lstrip("/")) for each in running if each.names)
        return names

    def _podman_name(self, id_: str, slice_uid: int | None, now: float) -> str | None:
        for store in self._podman_stores(slice_uid):
            listing = self._stores.get(store)
            if listing is None:
                listing = self._stores[store] = _Listing(partial(_stored_names, store))
            name = listing.get(id_, now)
            if name is not None:
                return name
        return None

    def _podman_stores(self, slice_uid: int | None) -> Iterator[str]:
        """The stores of podman; that of rootless containers is in their owner's home."""
        if slice_uid is not None:
            import pwd

            try:
                home = pwd.getpwuid(slice_uid).pw_dir
            except KeyError:
                pass
            else:
                yield f"{self._root}{home}/.local/share/containers/storage"
        yield f"{self._root}/var/lib/containers/storage"

    def _logged_pods(self) -> Mapping[str, str] | None:
        """NAMESPACE_POD by UID, from the kubelet's folders, which all users can list."""
        try:
            folders = os.listdir(f"{self._root}/var/log/pods")  # noqa: PTH208 - names are enough
        except OSError:
            return None
        # Names of Kubernetes have no underscores.
        parts = (folder.rpartition("_") for folder in folders)
        return {uid: names for names, _, uid in parts if names.count("_") == 1}


class _Listing:
    """Names by id that are loaded together, and loaded again for an unknown id.

    Args:
        load: Loads them; ``None`` if that fails, which may take a while.
    """

    def __init__(self, load: Callable[[], Mapping[str, str] | None]) -> None:
        self._load = load
        self._names: Mapping[str, str] = {}
        self._again_at: dict[str, float] = {}
        self._loaded_at: float | None = None
        self._retry_at = 0.0

    def get(self, id_: str, now: float) -> str | None:
        name = self._names.get(id_)
        if name is None and now >= max(self._retry_at, self._again_at.get(id_, 0.0)):
            # Load once for all unknown ids of a pass.
            if now != self._loaded_at:
                self._reload(now)
            self._again_at[id_] = now + RETRY_SECONDS
            name = self._names.get(id_)
        return name

    def _reload(self, now: float) -> None:
        names = self._load()
        self._names = names or {}
        self._loaded_at = now
        if names is None:
            self._retry_at = now + RETRY_SECONDS
        if len(self._again_at) >= _KEPT:
            self._again_at.clear()


def _pod_by_host_name(host_name: str | None) -> str | None:
    """The name of a pod, which is its host name unless the pod sets another.

    A pod in the host's network has the name of the host, which is not that of the pod.
    """
    if host_name is None or host_name == os.uname().nodename:
        return None
    return host_name if _HOST_NAME.fullmatch(host_name) else None


def _stored_names(store: str) -> Mapping[str, str] | None:
    """Names by id in a store of containers/storage; ``podman run --rm`` has a file of its own."""
    names: dict[str, str] | None = None
    for file in ("containers.json", "volatile-containers.json"):
        stored = _decoded(_read(f"{store}/overlay-containers/{file}"), list[_StoredContainer])
        if stored is not None:
            names = names or {}
            names.update((each.id, each.names[0]) for each in stored if each.names)
    return names


def _decoded(data: bytes | None, type_: type[_T]) -> _T | None:
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=type_)
    except (ValueError, RecursionError):
        return None


def _read(path: str) -> bytes | None:
    """Read a file up to a limit. Another user may have put a pipe there, which must not block."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return os.read(descriptor, _FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _ask(path: str, question: str, patience: float) -> bytes | None:
    """The body of the response to an HTTP GET over a Unix socket.

    ``None`` without a response or if it is not a success.
    """
    if not os.path.exists(path):  # noqa: PTH110 - a plain string
        return None
    # Imported only if a socket exists, because that takes 20 ms.
    import http.client
    import socket

    with closing(http.client.HTTPConnection("localhost", timeout=patience)) as connection:
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(patience)
            connection.sock.connect(path)
            connection.request("GET", question)
            with closing(connection.getresponse()) as response:
                body = response.read(_FILE_BYTES)
                return body if response.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
