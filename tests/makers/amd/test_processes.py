"""Processes on AMD GPUs: those of ``fdinfo``, those of KFD, and those of both."""

from __future__ import annotations

import pytest

from gpumon.makers.amd import backend as amd_backend
from gpumon.model.processes import GpuUse
from tests.makers.amd.machines import add, add_kfd_node, add_kfd_process
from tests.makers.drm.trees import SampledTree, see_all_processes

BUS = "0000:03:00.0"
KIB, MIB = 1024, 1024**2
RENDER = "/dev/dri/renderD128"


@pytest.fixture(autouse=True)
def outside_of_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    see_all_processes(monkeypatch)
    monkeypatch.setattr(amd_backend, "in_initial_pid_namespace", lambda _: True)


@pytest.fixture
def rocm(tree: SampledTree) -> SampledTree:
    """A machine with an RX 7900 XT and ROCm."""
    add(tree, "rx_7900_xt")
    add_kfd_node(tree, 1, 4711, BUS, 110000)
    return tree


def info(bus_id: str = BUS, client: int = 217, vram: int = 2068, **ns: int) -> str:
    """What ``fdinfo`` tells, in the form and with the figures of Umio-Yasuno/amdgpu_top#87."""
    engines = "".join(f"drm-engine-{name}:\t{value} ns\n" for name, value in ns.items())
    return (
        f"pasid:\t32784\ndrm-driver:\tamdgpu\ndrm-pdev:\t{bus_id}\ndrm-client-id:\t{client}\n"
        f"drm-memory-vram:\t{vram} KiB\ndrm-memory-gtt: \t8192 KiB\ndrm-memory-cpu: \t0 KiB\n"
        f"{engines}"
    )


def later_use(tree: SampledTree, pid: int, info: str | None = None) -> GpuUse:
    """What a process uses two seconds after the first reading, with what ``fdinfo`` says then."""
    tree.read()
    if info is not None:
        tree.open_file(pid, 7, RENDER, info)
    return tree.use(pid, 2.0)


def test_a_process_that_draws_is_told_by_fdinfo(rocm: SampledTree) -> None:
    rocm.process(2217, {7: (RENDER, info(gfx=107322799))})
    use = later_use(rocm, 2217, info(gfx=107322799 + 1_200_000_000))
    assert (rocm.lists(0.0)[2217].type, use.memory_used, use.sm) == ("G", 2068 * KIB, 60)


def test_the_form_of_linux_5_14_is_understood(rocm: SampledTree) -> None:
    # Keys and units of amdgpu_fdinfo.c from 5.14 to 5.18.
    old = f"pdev:\t{BUS}\npasid:\t32784\nvram mem:\t2068 kB\ngtt mem:\t8192 kB\ncpu mem:\t0 kB\n"
    rocm.process(2217, {7: (RENDER, f"{old}gfx0:\t42.50%\n")})
    use = rocm.use(2217)
    assert (use.memory_used, use.sm) == (2068 * KIB, 42)


@pytest.mark.parametrize(
    ("fdinfo", "kind", "memory"),
    [
        pytest.param(None, "C", 512, id="told by KFD"),
        pytest.param(info(vram=500 * KIB), "C", 512, id="in both lists, counts once"),
        pytest.param(info(vram=600 * KIB), "C", 600, id="more in fdinfo"),
        pytest.param(info(vram=0), "C", 512, id="nothing in fdinfo"),
        pytest.param(info(gfx=5), "C+G", 512, id="draws and computes"),
    ],
)
def test_a_process_of_rocm(rocm: SampledTree, fdinfo: str | None, kind: str, memory: int) -> None:
    rocm.process(301, {} if fdinfo is None else {7: (RENDER, fdinfo)})
    add_kfd_process(rocm, 301, {4711: 512 * MIB})
    use = later_use(rocm, 301)
    assert (rocm.lists(0.0)[301].type, use.memory_used) == (kind, memory * MIB)
    # Nobody counts the time of its queues: its share is unknown, and not 0.
    assert use.sm is None


def test_a_gpu_that_a_process_of_rocm_only_sees_is_not_listed(rocm: SampledTree) -> None:
    add(rocm, "rx_7800_xt", bus_id="0000:43:00.0", number=1)
    add_kfd_node(rocm, 2, 4712, "0000:43:00.0", 110001)
    rocm.process(301)
    add_kfd_process(rocm, 301, {4711: 0, 4712: 512 * MIB})
    use = rocm.use(301)
    assert (use.gpu_index, use.memory_used) == (1, 512 * MIB)


def test_memory_on_a_further_gpu_of_many_is_seen_within_four_scans(tree: SampledTree) -> None:
    for number in range(8):
        bus_id = f"0000:{number + 3:02x}:00.0"
        add(tree, "mi100", bus_id=bus_id, number=number)
        add_kfd_node(tree, 1 + number, 100 + number, bus_id, 90008)
    for pid in range(300, 340):
        tree.process(pid)
        add_kfd_process(tree, pid, {100 + number: 0 for number in range(8)} | {100: MIB})
    tree.read()
    add_kfd_process(tree, 317, {105: 3 * MIB, 100: 2 * MIB})
    for scan in range(4):
        listed = tree.lists()
        uses = [(use.gpu_index, use.memory_used) for use in listed[317].uses]
        assert uses[0] == (0, 2 * MIB), scan
    assert uses == [(0, 2 * MIB), (5, 3 * MIB)]
    assert len(listed) == 40


@pytest.mark.parametrize("in_function", [False, True])
def test_the_partitions_of_a_gpu_are_one_gpu_whose_memory_counts_once(
    tree: SampledTree, *, in_function: bool
) -> None:
    # CPX: one PCI device, platform devices amdgpu_xcp_N, and a node of KFD for each partition.
    add(tree, "mi300x", {"mem_info_vram_total": "206141652992\n"})
    for partition in range(8):
        # The two forms of location_id in the history of kfd_topology.c.
        bus_id = f"0000:26:00.{partition if in_function else 0}"
        high = 0 if in_function else partition
        add_kfd_node(tree, 1 + partition, 100 + partition, bus_id, 90402, partition=high)
        if partition:
            tree.partition(partition, 128 + partition)
    tree.process(301)
    add_kfd_process(tree, 301, {100: 300 * MIB, 103: 200 * MIB})
    gpu = tree.gpu()
    assert (gpu.memory_total, gpu.architecture) == (206141652992, "gfx942")
    assert tree.use(301, 0.0).memory_used == 500 * MIB


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amd_backend, "in_initial_pid_namespace", lambda _: False)


@pytest.mark.usefixtures("container")
def test_in_a_container_kfds_pids_are_not_taken_for_its_own(rocm: SampledTree) -> None:
    rocm.process(301)
    add_kfd_process(rocm, 301, {4711: 512 * MIB})
    assert rocm.lists() == {}


@pytest.mark.usefixtures("container")
def test_in_a_container_the_share_of_a_process_of_rocm_is_unknown(rocm: SampledTree) -> None:
    rocm.process(301, {7: (RENDER, info(vram=512 * KIB))})
    use = later_use(rocm, 301)
    assert (use.memory_used, use.sm) == (512 * MIB, None)


def test_memory_on_an_apu_is_that_of_both_regions(tree: SampledTree) -> None:
    add(tree, "phoenix")
    tree.process(2217, {7: (RENDER, info("0000:64:00.0", gfx=1))})
    assert tree.use(2217).memory_used == (2068 + 8192) * KIB


def test_engines_that_only_encode_or_decode_are_told_apart(tree: SampledTree) -> None:
    add(tree, "rx_6900_xt")
    tree.process(2217, {7: (RENDER, info("0000:0c:00.0", dec=1, enc=1))})
    later = info("0000:0c:00.0", dec=1 + 400_000_000, enc=1 + 100_000_000)
    use = later_use(tree, 2217, later)
    assert (use.decoder, use.encoder) == (20, 5)


def test_an_engine_that_does_both_is_not_taken_for_the_encoder(tree: SampledTree) -> None:
    # VCN 4 of RDNA 3 has one queue for both, which the driver counts as "enc".
    add(tree, "rx_7800_xt", {"ip_discovery/die/0/12/0/major": "4\n"})
    tree.process(2217, {7: (RENDER, info(enc=1))})
    use = later_use(tree, 2217, info(enc=1 + 400_000_000))
    assert (use.decoder, use.encoder) == (None, None)
