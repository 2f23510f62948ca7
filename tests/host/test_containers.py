"""How containers get their names, from stores in a folder and from a real socket."""

from __future__ import annotations

import errno
import json
import os
import pwd
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.containers import RETRY_SECONDS, ContainerNames
from gpumon.model.processes import Container

ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
OTHER_ID = "8d461fa5765781bcf5f7eb192f101bc3103d4b932e26236f43feecfa20664f96"
POD = "2c48913c-b29f-11e7-9350-020968147796"
DOCKER = Container("docker", ID)
PODMAN = Container("podman", ID)
HUGE = 9 * 2**20
"""Bytes, more than are read."""
RUNNING = [{"Id": ID, "Names": ["/llama-ft", "/alias/llama-ft"], "Labels": {"a": "b"}}]


class Docker(ThreadingMixIn, UnixStreamServer):
    """A server at a Unix socket that answers like Docker, or as it is told."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(str(path), _Handler)
        self.asked: list[str] = []
        self.status = 200
        self.answer = json.dumps(RUNNING).encode()


class _Handler(BaseHTTPRequestHandler):
    server: Docker

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.answer)))
        self.end_headers()
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: that of a socket may have 107 characters."""
    folder = tempfile.mkdtemp(prefix="gm")
    yield Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def names(root: Path) -> ContainerNames:
    return ContainerNames(str(root))


@contextmanager
def serving(path: Path) -> Iterator[Docker]:
    with Docker(path) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def docker(root: Path) -> Iterator[Docker]:
    with serving(root / "var/run/docker.sock") as server:
        yield server


def config(root: Path, id_: str = ID) -> Path:
    path = root / "var/lib/docker/containers" / id_ / "config.v2.json"
    path.parent.mkdir(parents=True)
    return path


def store(root: Path, home: str = "/var/lib") -> Path:
    folder = root / home.lstrip("/") / "containers/storage/overlay-containers"
    folder.mkdir(parents=True)
    return folder


def stored(name: str, id_: str = ID) -> str:
    return json.dumps([{"id": id_, "names": [name], "image": "39286ab8", "metadata": "{}"}])


def test_dockers_own_file_names_a_container(root: Path, names: ContainerNames) -> None:
    config(root).write_text(json.dumps({"ID": ID, "Name": "/llama-ft", "State": {"Pid": 5}}))
    assert names.named(DOCKER, 0.0) == Container("docker", ID, "llama-ft")


def test_a_file_that_is_missing_is_looked_for_once_a_minute(
    root: Path, names: ContainerNames
) -> None:
    assert names.named(DOCKER, 0.0) == DOCKER
    config(root).write_text('{"Name": "/llama-ft"}')
    assert names.named(DOCKER, RETRY_SECONDS - 1) == DOCKER
    assert names.named(DOCKER, RETRY_SECONDS).name == "llama-ft"


def test_docker_is_asked_over_its_socket(docker: Docker, names: ContainerNames) -> None:
    assert names.named(DOCKER, 0.0).label == "docker llama-ft"
    assert docker.asked == ["/containers/json"]


def test_a_users_own_docker_is_asked(root: Path, names: ContainerNames) -> None:
    with serving(root / f"run/user/{os.geteuid()}/docker.sock"):
        assert names.named(DOCKER, 0.0).name == "llama-ft"


def test_one_question_names_all_containers_of_a_pass(docker: Docker, names: ContainerNames) -> None:
    strangers = [f"{number:064x}" for number in range(50)]
    assert names.named(DOCKER, 1.0).name == "llama-ft"
    for id_ in strangers:
        assert names.named(Container("docker", id_), 1.0).name is None
    assert len(docker.asked) == 1


def test_a_container_without_a_name_is_asked_for_once_a_minute(
    docker: Docker, names: ContainerNames
) -> None:
    docker.answer = b"[]"
    for now in range(int(RETRY_SECONDS)):
        assert names.named(DOCKER, float(now)) == DOCKER
    assert len(docker.asked) == 1
    docker.answer = json.dumps(RUNNING).encode()
    assert names.named(DOCKER, RETRY_SECONDS).name == "llama-ft"
    assert names.named(DOCKER, 10 * RETRY_SECONDS).name == "llama-ft"
    assert len(docker.asked) == 2


def test_a_container_that_is_new_is_asked_for_at_once(
    docker: Docker, names: ContainerNames
) -> None:
    docker.answer = b"[]"
    names.named(Container("docker", OTHER_ID), 0.0)
    docker.answer = json.dumps(RUNNING).encode()
    assert names.named(DOCKER, 1.0).name == "llama-ft"


def test_a_docker_that_hangs_is_left_alone_for_a_minute(root: Path) -> None:
    path = root / "var/run/docker.sock"
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        silent.setblocking(False)
        names = ContainerNames(str(root), docker_patience=0.05)
        for number in range(100):
            container = Container("docker", f"{number:064x}")
            assert names.named(container, 1.0 + number / 10).name is None
        connection, _ = silent.accept()
        connection.close()
        with pytest.raises(BlockingIOError):
            silent.accept()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"null",
        b"{}",
        b'[{"Id": 5, "Names": 7}]',
        b'[{"Id": "' + ID.encode() + b'", "Names": []}]',
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps(RUNNING).encode()[:-1] + b" " * HUGE + b"]",
    ],
    ids=["empty", "cut", "null", "object", "types", "nameless", "deep", "bytes", "huge"],
)
def test_a_strange_answer_is_no_name(docker: Docker, answer: bytes, names: ContainerNames) -> None:
    docker.answer = answer
    assert names.named(DOCKER, 0.0) == DOCKER


def test_a_refusal_is_no_name(docker: Docker, names: ContainerNames) -> None:
    docker.status = 403
    assert names.named(DOCKER, 0.0) == DOCKER


def test_too_many_open_files_are_no_name(
    docker: Docker, monkeypatch: pytest.MonkeyPatch, names: ContainerNames
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", full)
        assert names.named(DOCKER, 0.0) == DOCKER
    assert docker.asked == []


def test_no_docker_is_no_name(root: Path, names: ContainerNames) -> None:
    (root / "var/run").mkdir(parents=True)
    (root / "var/run/docker.sock").write_text("no socket")
    assert names.named(DOCKER, 0.0) == DOCKER


def test_a_bare_id_is_dockers_once_docker_knows_it(docker: Docker, names: ContainerNames) -> None:
    assert names.named(Container("container", ID), 0.0) == Container("docker", ID, "llama-ft")
    assert names.named(Container("ecs", ID), 0.0) == Container("ecs", ID, "llama-ft")
    stranger = Container("container", OTHER_ID)
    assert names.named(stranger, 0.0) == stranger
    assert docker.asked


def test_podmans_store_names_a_container(root: Path, names: ContainerNames) -> None:
    (store(root) / "containers.json").write_text(stored("trainer"))
    assert names.named(PODMAN, 0.0) == Container("podman", ID, "trainer")


def test_a_container_that_podman_will_remove_is_named(root: Path, names: ContainerNames) -> None:
    folder = store(root)
    (folder / "containers.json").write_text(stored("trainer", OTHER_ID))
    (folder / "volatile-containers.json").write_text(stored("passing"))
    assert names.named(PODMAN, 0.0).name == "passing"


def test_a_rootless_container_is_in_its_owners_home(root: Path, names: ContainerNames) -> None:
    own = pwd.getpwuid(0)
    (store(root, f"{own.pw_dir}/.local/share") / "containers.json").write_text(stored("mine"))
    assert names.named(PODMAN, 0.0).name is None, "it is in nobody's slice"
    assert names.named(PODMAN, 0.0, slice_uid=own.pw_uid).name == "mine"


def test_an_owner_without_an_account_has_no_store(names: ContainerNames) -> None:
    assert names.named(PODMAN, 0.0, slice_uid=4_000_000_000) == PODMAN


def test_nothing_but_a_plain_file_is_opened_in_a_home(root: Path, names: ContainerNames) -> None:
    folder = store(root)
    secret = root / "secret.json"
    secret.write_text(stored("secret"))
    (folder / "volatile-containers.json").symlink_to(secret)
    os.mkfifo(folder / "containers.json")  # opening one for reading would wait for a writer
    assert names.named(PODMAN, 0.0) == PODMAN


def test_a_huge_file_is_not_read(root: Path, names: ContainerNames) -> None:
    text = stored("trainer")
    (store(root) / "containers.json").write_text(text[:-1] + " " * HUGE + text[-1])
    assert names.named(PODMAN, 0.0) == PODMAN


@given(st.binary(max_size=200))
def test_no_file_makes_it_fail(data: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="gm") as folder:
        config(Path(folder)).write_bytes(data)
        (store(Path(folder)) / "containers.json").write_bytes(data)
        names = ContainerNames(folder)
        assert names.named(DOCKER, 0.0) == DOCKER
        assert names.named(PODMAN, 0.0) == PODMAN


def test_a_name_that_a_list_lacks_is_looked_for_once_a_minute(
    root: Path, names: ContainerNames
) -> None:
    pod = Container("containerd", ID, pod=POD)
    listed, logs = store(root) / "containers.json", root / "var/log/pods"
    listed.write_text(stored("another", OTHER_ID))
    logs.mkdir(parents=True)
    assert (names.named(PODMAN, 0.0), names.named(pod, 0.0)) == (PODMAN, pod)
    listed.write_text(stored("trainer"))
    (logs / f"ml_train-0_{POD}").mkdir()
    early = RETRY_SECONDS - 1
    assert (names.named(PODMAN, early), names.named(pod, early)) == (PODMAN, pod)
    assert names.named(PODMAN, RETRY_SECONDS).name == "trainer"
    assert names.named(pod, RETRY_SECONDS).pod == "train-0"


def test_the_kubelets_log_folder_names_a_pod(root: Path, names: ContainerNames) -> None:
    logs = root / "var/log/pods"
    (logs / f"ml_train-0_{POD}").mkdir(parents=True)
    (logs / "something else").mkdir()
    (logs / f"a_b_c_{POD}").mkdir()
    container = Container("containerd", ID, pod=POD)
    assert names.named(container, 0.0, host_name="chosen").label == "pod train-0"
    assert names.named(container, 0.0).full_pod == "ml/train-0"
    assert names.named(Container("kubernetes", pod=POD), 0.0).pod == "train-0"


def test_a_pod_goes_by_its_host_name_where_it_has_one_of_its_own(names: ContainerNames) -> None:
    container = Container("containerd", ID, pod=POD)
    assert names.named(container, 0.0, host_name="train-0").full_pod == "train-0"
    assert names.named(container, 0.0, host_name=None).pod == POD
    assert names.named(container, 0.0, host_name="../etc").pod == POD
    assert names.named(container, 0.0, host_name=os.uname().nodename).pod == POD, (
        "a pod in the host's network has the host's name"
    )


@pytest.mark.parametrize(
    "container",
    [Container("lxc", "web", "web"), Container("containerd", ID), Container("apptainer")],
    ids=lambda container: container.runtime,
)
def test_others_stay_as_they_are(
    docker: Docker, container: Container, names: ContainerNames
) -> None:
    assert names.named(container, 0.0) is container
    assert docker.asked == []
