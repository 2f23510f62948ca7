"""Finds the names of containers in the files and sockets of the container runtimes.

Most of them are readable by root only, and all of them may be missing, broken or huge: then the
container is shown with its id.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpumon.model.processes import Container

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
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")
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
            pod = self._pods.get(container.pod, now) or _pod_by_host_name(host_name)
            return container if pod is None else msgspec.structs.replace(container, pod=pod)
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
            answer = _ask(f"{self._root}/{path}", "/containers/json")
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
        """Pods by UID, from the kubelet's folders NAMESPACE_POD_UID, which all users can list."""
        try:
            folders = os.listdir(f"{self._root}/var/log/pods")  # noqa: PTH208 - names are enough
        except OSError:
            return None
        parts = (folder.split("_") for folder in folders)
        return {names[2]: names[1] for names in parts if len(names) == 3}


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


def _ask(path: str, question: str) -> bytes | None:
    """The body of the response to an HTTP GET over a Unix socket, if the socket exists."""
    if not os.path.exists(path):  # noqa: PTH110 - a plain string
        return None
    from gpumon.host.unix_http import ask

    return ask(path, question, _DOCKER_SECONDS, _FILE_BYTES)
