"""The names that people gave their containers, from what the runtimes keep on this machine.

Most of it is for root's eyes only, and all of it may be missing, broken, or huge: then there is no
name, and the container goes by its id.
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

    from gpumon.model.snapshot import Container

RETRY_SECONDS = 60.0
"""After how long a question that had no answer is asked again."""

_DOCKER_SECONDS = 1.0
"""How long Docker may take. It answers in milliseconds, and not at all while it hangs."""
_FILE_BYTES = 8 * 2**20
_KEPT = 4096

_HOST_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
"""What a pod may be called: a DNS subdomain, RFC 1123."""

_T = TypeVar("_T")


class _DockerConfig(Struct):
    """The part of ``config.v2.json`` that matters here."""

    name: str = msgspec.field(name="Name")


class _DockerContainer(Struct):
    """The part of an entry of Docker's ``GET /containers/json`` that matters here."""

    id: str = msgspec.field(name="Id")
    names: list[str] = msgspec.field(name="Names")


class _StoredContainer(Struct):
    """The part of an entry of containers/storage's ``containers.json`` that matters here."""

    id: str
    names: list[str] = []


class ContainerNames:
    """Finds the names of containers and pods. Not safe to use from several threads.

    What was found is kept; what was not is looked for again after ``RETRY_SECONDS``.

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
        """The same container with what people call it, where that can be had.

        Args:
            container: As its cgroup tells it, its pod by UID.
            now: Seconds on the monotonic clock.
            slice_uid: The user in whose slice it runs: a rootless one is in that user's store.
            host_name: What the process takes for the host's name (``HOSTNAME`` in its environment).
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
            # Whose ids are bare in a cgroup of the user's own choice is known once Docker knows it.
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
        """Name by id, as Docker tells whoever may use its socket, and as the user's own tells."""
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
        """Where podman keeps its containers: the rootless ones in their owner's home."""
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
        """Pod by UID: the kubelet's folders are called NAMESPACE_POD_UID, and anybody may look."""
        try:
            folders = os.listdir(f"{self._root}/var/log/pods")  # noqa: PTH208 - names are enough
        except OSError:
            return None
        parts = (folder.split("_") for folder in folders)
        return {names[2]: names[1] for names in parts if len(names) == 3}


class _Listing:
    """Names by id that are all had at once, and had again when an id is asked for that is new.

    Args:
        load: Has them; ``None`` when they cannot be had, which may take a while to find out.
    """

    def __init__(self, load: Callable[[], Mapping[str, str] | None]) -> None:
        self._load = load
        self._names: Mapping[str, str] = {}
        self._again_at: dict[str, float] = {}
        self._loaded_at: float | None = None
        self._resting_until = 0.0

    def get(self, id_: str, now: float) -> str | None:
        name = self._names.get(id_)
        if name is None and now >= max(self._resting_until, self._again_at.get(id_, 0.0)):
            # Many new ones in one pass are found in one list.
            if now != self._loaded_at:
                self._have(now)
            self._again_at[id_] = now + RETRY_SECONDS
            name = self._names.get(id_)
        return name

    def _have(self, now: float) -> None:
        names = self._load()
        self._names = names or {}
        self._loaded_at = now
        if names is None:
            self._resting_until = now + RETRY_SECONDS
        if len(self._again_at) >= _KEPT:
            self._again_at.clear()


def _pod_by_host_name(host_name: str | None) -> str | None:
    """The pod's name, which is its host name unless the pod chose another.

    A pod in the host's network goes by the host's name, which is none for a pod.
    """
    if host_name is None or host_name == os.uname().nodename:
        return None
    return host_name if _HOST_NAME.fullmatch(host_name) else None


def _stored_names(store: str) -> Mapping[str, str] | None:
    """Name by id in a store of containers/storage; those of ``podman run --rm`` stand apart."""
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
    """A file, cut at a bound. It may lie where other users write: a pipe there must not stop us."""
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
    """The body of the answer to an HTTP GET over a Unix socket, where there is one."""
    if not os.path.exists(path):  # noqa: PTH110 - a plain string
        return None
    from gpumon.host.unix_http import ask

    return ask(path, question, _DOCKER_SECONDS, _FILE_BYTES)
