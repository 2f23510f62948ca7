"""What a kubelet says about its pods, with a real gRPC server and with anything else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.allocations import Allocations, local_allocations
from gpumon.allocations.grpc_call import MOST_BYTES, call
from gpumon.allocations.kubernetes import KubernetesAllocations
from gpumon.allocations.pod_devices import DeviceFinder, FoundDevice
from gpumon.allocations.pod_resources import Pod, PodDevice, pods_of
from gpumon.model.allocations import Allocation
from gpumon.model.processes import Container, GpuUse, Workload
from gpumon.model.snapshot import MigInstance
from tests.build import gpu, process, snapshot
from tests.clock import HandClock
from tests.known import known
from tests.kubelet import Kubelet, container, field, pod

METHOD = "v1.PodResourcesLister/List"
FOUR = snapshot(
    0.0,
    *(
        gpu(index=index, uuid=f"GPU-10000000-0000-0000-0000-00000000000{index}", minor_number=index)
        for index in range(4)
    ),
)
UUIDS = [each.uuid for each in FOUR.gpus]
NOT_KNOWN = Allocation("kubernetes", unplaced=None)


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[Kubelet]:
    made = Kubelet(tmp_path)
    made.answer(b"")
    with made:
        yield made


def of(name: str, *devices: str, unplaced: int | None = 0, is_share: bool = False) -> Allocation:
    return Allocation(
        "kubernetes", f"train/{name}", devices=devices, unplaced=unplaced, is_share=is_share
    )


def test_each_pod_has_its_gpus(kubelet: Kubelet) -> None:
    kubelet.answer(
        pod("worker-0", container({"nvidia.com/gpu": UUIDS[:1]}), container())
        + pod("no-gpu", container({"github.com/fuse": ["fuse0"]}))
        + pod("shared", container({"nvidia.com/gpu.shared": [f"{UUIDS[1]}::3"]}))
        + pod("claim", container(claims=[("gpu.nvidia.com", "gpu-2"), ("dra.net", "eth0")]))
        + pod("mps", container(claims=[("gpu.nvidia.com", "gpu-2", "share-1")]))
        + pod("odd", container({"nvidia.com/gpu": ["?", "!"]}))
        + pod("part", container({"amd.com/gpu": ["amdgpu_xcp_1", "amdgpu_xcp_2"]}))
    )
    found, pause = KubernetesAllocations(str(kubelet.socket)).find(FOUR, 5.0)
    assert found == (
        of("worker-0", UUIDS[0]),
        of("shared", UUIDS[1], is_share=True),
        of("claim", UUIDS[2]),
        of("mps", UUIDS[2], is_share=True),
        of("odd", unplaced=2),
        of("part", unplaced=None, is_share=True),
    )
    assert 4 < pause <= 5


def test_a_process_of_a_pod_shows_a_gpu_of_it(kubelet: Kubelet) -> None:
    names = [f"{UUIDS[3]}-0", f"{UUIDS[3]}-1"]
    kubelet.answer(pod("vgpu", container({"nvidia.com/gpu": names})))
    processes = tuple(
        replace(
            process(index),
            uses=(GpuUse(UUIDS[index], index),),
            place=Workload(Container("kubernetes", pod=name, namespace=namespace)),
        )
        for index, (namespace, name) in enumerate(
            (("train", "vgpu"), ("test", "vgpu"), ("train", "other"), (None, "vgpu"))
        )
    )
    seen = replace(FOUR, processes=processes)
    found, _ = KubernetesAllocations(str(kubelet.socket)).find(seen, 5.0)
    assert found == (of("vgpu", UUIDS[0], unplaced=1),)


def test_a_kubelet_is_asked_every_5_seconds_and_less_while_it_fails(kubelet: Kubelet) -> None:
    clock = HandClock(0.0)
    scheduler = KubernetesAllocations(str(kubelet.socket), clock)
    kubelet.answer(None)
    assert scheduler.find(FOUR, 5.0) == ((NOT_KNOWN,), 10.0)
    kubelet.answer(pod("a", container({"nvidia.com/gpu": UUIDS[:1]})))
    clock.now += 9
    assert scheduler.find(FOUR, 5.0) == ((NOT_KNOWN,), 1.0)
    clock.now += 1
    assert scheduler.find(FOUR, 5.0) == ((of("a", UUIDS[0]),), 5.0)
    kubelet.answer(b"")
    clock.now += 4
    assert scheduler.find(FOUR, 5.0) == ((of("a", UUIDS[0]),), 1.0)
    clock.now += 1
    assert scheduler.find(FOUR, 5.0) == ((), 5.0)


def test_what_pods_have_stays_known_while_the_kubelet_starts_again(kubelet: Kubelet) -> None:
    clock = HandClock(0.0)
    scheduler = KubernetesAllocations(str(kubelet.socket), clock)
    kubelet.answer(pod("a", container({"nvidia.com/gpu": UUIDS[:1]})))
    known = (of("a", UUIDS[0]),)
    assert scheduler.find(FOUR, 5.0)[0] == known
    kubelet.kill()
    clock.now += 30
    assert scheduler.find(FOUR, 5.0)[0] == known
    clock.now += 30
    assert scheduler.find(FOUR, 5.0)[0] == (*known, NOT_KNOWN)
    kubelet.start()
    clock.now += 60
    assert scheduler.find(FOUR, 5.0)[0] == known


def test_a_kubelet_that_hangs_costs_2_seconds(kubelet: Kubelet) -> None:
    scheduler = KubernetesAllocations(str(kubelet.socket))
    with kubelet.hanging():
        began = time.monotonic()
        assert scheduler.find(FOUR, 25.0)[0] == (NOT_KNOWN,)
        assert scheduler.find(FOUR, 25.0)[0] == (NOT_KNOWN,)
        assert 1.9 < time.monotonic() - began < 3.5


@pytest.mark.slow
def test_answers_up_to_4_mib_are_taken(kubelet: Kubelet) -> None:
    kubelet.answer(b"x" * MOST_BYTES)
    assert call(str(kubelet.socket), METHOD, 20.0) == b"x" * MOST_BYTES
    kubelet.answer(b"x" * (MOST_BYTES + 1))
    assert call(str(kubelet.socket), METHOD, 20.0) is None
    kubelet.answer(b"x" * (25 * MOST_BYTES))
    began = time.monotonic()
    assert call(str(kubelet.socket), METHOD, 50.0) is None
    assert time.monotonic() - began < 20
    assert call(str(kubelet.socket), "v1.PodResourcesLister/Nothing", 20.0) is None


@contextmanager
def server(path: Path, serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that is no gRPC server."""

    def accept() -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            serve(connection)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=accept)
        thread.start()
        yield str(path)
    thread.join(20.0)
    assert not thread.is_alive()


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def forever(data: bytes, pause: float = 0.0) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        while True:
            connection.sendall(data)
            time.sleep(pause)

    return serve


@pytest.mark.slow
@pytest.mark.parametrize(
    "serve",
    [
        lambda _: None,
        lambda connection: connection.recv(1),
        lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        forever(b"\0"),
        forever(b"\xff" * 65536),
        forever(bytes(range(256)) * 256),
        forever(b"\0", 0.1),
        # Frames without an end: pings, settings, headers, empty data, data of another stream.
        forever(frame(6, 0, 0, b"12345678")),
        forever(frame(4, 0, 0)),
        forever(frame(1, 0, 1)),
        forever(frame(0, 0, 1)),
        forever(frame(0, 0, 3, b"x" * 16384)),
        forever(frame(0, 0, 1, b"x" * 16384)),
        # The end of a stream without a message, with half of it, and with a compressed message.
        forever(frame(1, 1, 1)),
        forever(frame(0, 1, 1, b"\0\0\0\0\2x")),
        forever(frame(0, 1, 1, b"\1\0\0\0\1x")),
        forever(frame(0, 9, 1, b"\xff\0\0\0\0\1x")),
        forever(frame(0, 9, 1)),
        forever(frame(3, 0, 1, b"\0\0\0\2")),
    ],
)  # fmt: skip
def test_any_other_server_gives_no_answer_soon(
    tmp_path: Path, serve: Callable[[socket.socket], None]
) -> None:
    with server(tmp_path / "s", serve) as path:
        began = time.monotonic()
        assert call(path, METHOD, 1.0) is None
        assert time.monotonic() - began < 3


def test_a_server_that_refuses_is_not_waited_for(tmp_path: Path) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(frame(3, 0, 1, b"\0\0\0\7"))
        while connection.recv(65536):
            pass

    with server(tmp_path / "s", serve) as path:
        began = time.monotonic()
        assert call(path, METHOD, 50.0) is None
        assert time.monotonic() - began < 20


def test_padding_and_pings_are_understood(tmp_path: Path) -> None:
    repeated: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.sendall(frame(4, 0, 0, b"\0\3\0\0\0\1") + frame(6, 0, 0, b"12345678"))
        received = b""
        while frame(6, 1, 0, b"12345678") not in received:
            received += connection.recv(65536)
        repeated.append(received)
        connection.sendall(frame(1, 4, 1, b"\x88") + frame(0, 8, 1, b"\2\0\0\0\0\2ab??"))
        connection.sendall(frame(0, 0, 1) + frame(1, 5, 1))

    with server(tmp_path / "s", serve) as path:
        assert call(path, METHOD, 10.0) == b"ab"
    assert frame(4, 1, 0) in repeated[0]


def test_without_a_kubelet_nothing_answers(tmp_path: Path) -> None:
    assert call(str(tmp_path / "nothing"), METHOD, 1.0) is None
    assert call(str(tmp_path), METHOD, 1.0) is None
    assert call(f"/{'x' * 4096}", METHOD, 1.0) is None


WHOLE = pod(
    "worker-0",
    container({"nvidia.com/gpu": ["GPU-1", "GPU-2"]}, [("gpu.nvidia.com", "gpu-0", "s")]),
    container({"nvidia.com/gpu": ["GPU-2"]}),
)
READ = Pod(
    "train",
    "worker-0",
    (
        PodDevice("nvidia.com/gpu", "GPU-1"),
        PodDevice("nvidia.com/gpu", "GPU-2"),
        PodDevice("gpu.nvidia.com", "gpu-0", is_claimed=True, is_share=True),
    ),
)


def test_a_pod_has_each_device_once() -> None:
    assert pods_of(WHOLE) == [READ]
    assert pods_of(b"") == []
    # Fields of newer versions, of each encoding.
    newer = field(99, b"x") + b"\x98\x06\xff\x7f" + b"\x99\x06" + b"x" * 8 + b"\x9d\x06" + b"x" * 4
    assert pods_of(newer + WHOLE + newer) == [READ]


def test_what_is_cut_off_is_not_believed() -> None:
    for length in range(1, len(WHOLE)):
        assert pods_of(WHOLE[:length]) is None


@pytest.mark.parametrize(
    "message",
    [
        b"\xff" * 20,
        b"\x0b\x0c",
        b"\x0a" + b"\xff" * 9 + b"\x01",
        field(1, field(3, field(2, b"\x0a\x05x"))),
        field(1, b"") * 200_000,
        field(1, field(3, b"") * 200_000),
    ],
    ids=["tags", "groups", "length", "device", "pods", "containers"],
)
def test_what_is_malformed_or_far_too_much_is_not_believed(message: bytes) -> None:
    began = time.process_time()
    assert pods_of(message) is None
    assert time.process_time() - began < 2


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(message: bytes) -> None:
    assert all(isinstance(each, Pod) for each in pods_of(message) or ())


def test_a_name_is_cut_and_not_changed() -> None:
    odd = known(pods_of(pod("\x1b[31m" + "x" * 5000, container({"nvidia.com/gpu": ["\x1b"]}))))
    assert len(odd[0].name) == 512


def test_only_a_socket_that_may_be_opened_is_asked(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("GPUMON_KUBELET_SOCKET", str(kubelet.socket) + "x")
    assert local_allocations() is None
    monkeypatch.setenv("GPUMON_KUBELET_SOCKET", str(kubelet.socket))
    found = local_allocations()
    assert isinstance(found, Allocations)
    assert found.unknown == (NOT_KNOWN,)
    assert found.settle(FOUR, 5.0) == ()


# Which GPU a pod's device is, by the names of each plugin


A, B = "GPU-10000000-0000-0000-0000-00000000000a", "GPU-10000000-0000-0000-0000-00000000000b"
OTHER = "GPU-10000000-0000-0000-0000-00000000000f"
PART = "MIG-20000000-0000-0000-0000-000000000001"
OLD_PART = f"MIG-{B}/2/0"
GPUS = (
    gpu(index=0, uuid=A, minor_number=1, pci_bus_id="00000000:41:00.0"),
    gpu(
        index=1,
        uuid=B,
        minor_number=0,
        pci_bus_id="00000000:C1:00.0",
        mig=(MigInstance(PART, 0, gpu_instance=7), MigInstance(OLD_PART, 1, gpu_instance=8)),
    ),
    gpu(index=2, uuid="GPU-0123456789abcdef", minor_number=129, pci_bus_id="0000:03:00.0"),
)
AMD = GPUS[2].uuid
UNKNOWN = FoundDevice(None)


@pytest.mark.parametrize(
    ("resource", "name", "found"),
    [
        ("nvidia.com/gpu", A, FoundDevice((A,))),
        ("nvidia.com/gpu", f"{A}::3", FoundDevice((A,), is_share=True)),
        ("nvidia.com/gpu.shared", f"{A}::0", FoundDevice((A,), is_share=True)),
        # The administrator chooses the name of a shared resource.
        ("nvidia.com/little", f"{A}::0", FoundDevice((A,), is_share=True)),
        ("nvidia.com/mig-1g.10gb", PART, FoundDevice((PART,))),
        ("nvidia.com/mig-1g.10gb", f"{PART}::1", FoundDevice((PART,), is_share=True)),
        ("nvidia.com/mig-1g.10gb", OLD_PART, FoundDevice((OLD_PART,))),
        # It is not shown, so that it is none of the others.
        ("nvidia.com/gpu", OTHER, FoundDevice(())),
        # Its scheduler takes another GPU than the kubelet thinks: HAMi.
        ("nvidia.com/gpu", f"{A}-0", UNKNOWN),
        ("nvidia.com/gpu", "", UNKNOWN),
        ("nvidia.com/gpu", "\x1b[31m", UNKNOWN),
        ("nvidia.com/gpu", "nvidia1", FoundDevice((A,))),
        ("nvidia.com/gpu", "nvidia1/vgpu0", FoundDevice((A,), is_share=True)),
        ("nvidia.com/gpu", "nvidia0/gi7", FoundDevice((PART,))),
        ("nvidia.com/gpu", "nvidia0/gi7/vgpu2", FoundDevice((PART,), is_share=True)),
        ("nvidia.com/gpu", "nvidia0/gi9", FoundDevice((B,), is_share=True)),
        ("nvidia.com/gpu", "nvidia5", FoundDevice(())),
        # A network card, and a GPU for virtual machines.
        ("nvidia.com/hostdev", "0000:41:00.0", None),
        ("nvidia.com/GA102GL_A10", "0000:41:00.0", None),
        ("nvidia.com/gpu_memory", "GPU-0", None),
        ("amd.com/gpu", "0000:03:00.0", FoundDevice((AMD,))),
        ("amd.com/gpu", "0000:04:00.0", FoundDevice(())),
        ("amd.com/gpu", "card0", UNKNOWN),
        ("amd.com/gpu", "amdgpu_xcp_3", FoundDevice(None, is_share=True)),
        ("amd.com/cpx_nps4", "amdgpu_xcp_3", FoundDevice(None, is_share=True)),
        ("amd.com/cpx_nps4", "?", UNKNOWN),
        ("gpu.intel.com/i915", "card1-0", FoundDevice((AMD,))),
        ("gpu.intel.com/xe", "card1-2", FoundDevice((AMD,), is_share=True)),
        ("gpu.intel.com/i915", "card9-0", UNKNOWN),
        ("gpu.intel.com/i915_monitoring", "all", None),
        ("github.com/fuse", "fuse0", None),
        ("", A, None),
    ],
)
def test_plugin_device(tmp_path: Path, resource: str, name: str, found: FoundDevice | None) -> None:
    (tmp_path / "class/drm/card1").mkdir(parents=True)
    (tmp_path / "class/drm/card1/device").symlink_to("../../../0000:03:00.0")
    finder = DeviceFinder(GPUS, str(tmp_path))
    assert finder.find(PodDevice(resource, name)) == found


@pytest.mark.parametrize(
    ("driver", "name", "found"),
    [
        ("gpu.nvidia.com", "gpu-1", FoundDevice((A,))),
        ("gpu.nvidia.com", "gpu-0-mig-19-4-1", FoundDevice((B,), is_share=True)),
        ("gpu.nvidia.com", "gpu-vfio-0", None),
        ("gpu.nvidia.com", "gpu-9", FoundDevice(())),
        ("gpu.nvidia.com", A, UNKNOWN),
        ("gpu.amd.com", "gpu-1-129", FoundDevice((AMD,))),
        ("gpu.amd.com", "gpu-9-137", FoundDevice(None, is_share=True)),
        ("gpu.intel.com", "0000-03-00-0-0x56a0", FoundDevice((AMD,))),
        ("gpu.intel.com", "0000-03-00-0-0x56a0-vf", UNKNOWN),
        ("compute-domain.nvidia.com", "channel-0", None),
        ("dra.net", "eth0", None),
    ],
)
def test_a_claimed_device(driver: str, name: str, found: FoundDevice | None) -> None:
    assert DeviceFinder(GPUS).find(PodDevice(driver, name, is_claimed=True)) == found


def test_a_gpu_without_its_number_may_be_any() -> None:
    finder = DeviceFinder((*GPUS, gpu(index=3, uuid=OTHER)))
    for resource, name in (("nvidia.com/gpu", "nvidia5"), ("amd.com/gpu", "0000:04:00.0")):
        assert finder.find(PodDevice(resource, name)) == UNKNOWN
    assert finder.find(PodDevice("nvidia.com/gpu", "nvidia1")) == FoundDevice((A,))
