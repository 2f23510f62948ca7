"""Processes on AMD GPUs: those of ``fdinfo``, those of KFD, and those of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.makers.amd import backend as amd_backend
from gpumon.makers.amd.backend import AmdBackend
from tests.makers.amd.machines import add, add_kfd_node, add_kfd_process, machine
from tests.makers.drm.trees import Tree, see_all_processes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpumon.makers.backend import ListedProcess
    from tests.clock import HandClock

BUS = "0000:03:00.0"
KIB, MIB = 1024, 1024**2
RENDER = "/dev/dri/renderD128"


@pytest.fixture(autouse=True)
def outside_of_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    see_all_processes(monkeypatch)
    monkeypatch.setattr(amd_backend, "in_initial_pid_namespace", lambda _: True)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A machine with an RX 7900 XT and ROCm."""
    tree = machine(tmp_path, "rx_7900_xt")
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


def opened(tree: Tree, clock: HandClock) -> AmdBackend:
    backend = tree.backend(AmdBackend, clock=clock)
    backend.open()
    return backend


def listed(backend: AmdBackend) -> Mapping[int, ListedProcess]:
    lists = backend.read().listed
    assert lists is not None
    return lists


def test_a_process_that_draws_is_told_by_fdinfo(tree: Tree, clock: HandClock) -> None:
    tree.process(2217, {99: (RENDER, info(gfx=107322799))})
    backend = opened(tree, clock)
    listed(backend)
    clock.now += 2.0
    tree.open_file(2217, 99, RENDER, info(gfx=107322799 + 1_200_000_000))
    process = listed(backend)[2217]
    (use,) = process.uses
    assert (process.type, use.memory_used, use.sm) == ("G", 2068 * KIB, 60)


def test_the_form_of_linux_5_14_is_understood(tree: Tree, clock: HandClock) -> None:
    # Keys and units of amdgpu_fdinfo.c from 5.14 to 5.18.
    old = f"pdev:\t{BUS}\npasid:\t32784\nvram mem:\t2068 kB\ngtt mem:\t8192 kB\ncpu mem:\t0 kB\n"
    tree.process(2217, {99: (RENDER, f"{old}gfx0:\t42.50%\n")})
    (use,) = listed(opened(tree, clock))[2217].uses
    assert (use.memory_used, use.sm) == (2068 * KIB, 42)


def test_a_process_of_rocm_is_told_by_kfd(tree: Tree, clock: HandClock) -> None:
    tree.process(301)
    add_kfd_process(tree, 301, {4711: 512 * MIB})
    process = listed(opened(tree, clock))[301]
    (use,) = process.uses
    # Nobody counts the time of its queues: its share is unknown, and not 0.
    assert (process.type, use.memory_used, use.sm) == ("C", 512 * MIB, None)


@pytest.mark.parametrize(
    ("kfd", "fdinfo", "shown"), [(512, 500, 512), (512, 600, 600), (512, 0, 512)]
)
def test_a_process_in_both_lists_counts_once(
    tree: Tree, clock: HandClock, kfd: int, fdinfo: int, shown: int
) -> None:
    tree.process(301, {7: (RENDER, info(vram=fdinfo * KIB))})
    add_kfd_process(tree, 301, {4711: kfd * MIB})
    backend = opened(tree, clock)
    listed(backend)
    clock.now += 2.0
    process = listed(backend)[301]
    (use,) = process.uses
    assert (process.type, use.memory_used, use.sm) == ("C", shown * MIB, None)


def test_a_process_that_draws_and_computes_has_both_types(tree: Tree, clock: HandClock) -> None:
    tree.process(301, {7: (RENDER, info(gfx=5))})
    add_kfd_process(tree, 301, {4711: 512 * MIB})
    assert listed(opened(tree, clock))[301].type == "C+G"


def test_a_gpu_that_a_process_of_rocm_only_sees_is_not_listed(tree: Tree, clock: HandClock) -> None:
    add(tree, "rx_7800_xt", bus_id="0000:43:00.0", number=1)
    add_kfd_node(tree, 2, 4712, "0000:43:00.0", 110001)
    tree.process(301)
    add_kfd_process(tree, 301, {4711: 0, 4712: 512 * MIB})
    (use,) = listed(opened(tree, clock))[301].uses
    assert (use.gpu_index, use.memory_used) == (1, 512 * MIB)


def test_memory_on_a_further_gpu_of_a_large_machine_is_seen_within_four_scans(
    tmp_path: Path, clock: HandClock
) -> None:
    tree = Tree(tmp_path)
    for number in range(8):
        bus_id = f"0000:{number + 3:02x}:00.0"
        add(tree, "mi100", bus_id=bus_id, number=number)
        add_kfd_node(tree, 1 + number, 100 + number, bus_id, 90008)
    for pid in range(300, 340):
        tree.process(pid)
        add_kfd_process(tree, pid, {100 + number: 0 for number in range(8)} | {100: MIB})
    backend = opened(tree, clock)
    listed(backend)
    add_kfd_process(tree, 317, {105: 3 * MIB, 100: 2 * MIB})
    for scan in range(4):
        clock.now += 1.0
        uses = listed(backend)[317].uses
        assert uses[0].memory_used == 2 * MIB, scan
    assert [(use.gpu_index, use.memory_used) for use in uses] == [(0, 2 * MIB), (5, 3 * MIB)]
    assert len(listed(backend)) == 40


@pytest.mark.parametrize("in_function", [False, True])
def test_the_partitions_of_a_gpu_are_one_gpu_whose_memory_counts_once(
    tmp_path: Path, clock: HandClock, *, in_function: bool
) -> None:
    # CPX: one PCI device, platform devices amdgpu_xcp_N, and a node of KFD for each partition.
    tree = machine(tmp_path, "mi300x", {"mem_info_vram_total": "206141652992\n"})
    for partition in range(8):
        # The two forms of location_id in the history of kfd_topology.c.
        bus_id = f"0000:26:00.{partition if in_function else 0}"
        high = 0 if in_function else partition
        add_kfd_node(tree, 1 + partition, 100 + partition, bus_id, 90402, partition=high)
        if partition:
            tree.partition(partition, 128 + partition)
    tree.process(301)
    add_kfd_process(tree, 301, {100: 300 * MIB, 103: 200 * MIB})
    backend = opened(tree, clock)
    reading = backend.read()
    (gpu,) = reading.gpus
    assert (gpu.memory_total, gpu.architecture) == (206141652992, "gfx942")
    assert reading.listed is not None
    (use,) = reading.listed[301].uses
    assert use.memory_used == 500 * MIB


def test_in_a_container_kfds_pids_are_not_taken_for_its_own(
    tree: Tree, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amd_backend, "in_initial_pid_namespace", lambda _: False)
    tree.process(301)
    add_kfd_process(tree, 301, {4711: 512 * MIB})
    assert listed(opened(tree, clock)) == {}


def test_in_a_container_the_share_of_a_process_of_rocm_is_unknown(
    tree: Tree, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amd_backend, "in_initial_pid_namespace", lambda _: False)
    tree.process(301, {7: (RENDER, info(vram=512 * KIB))})
    backend = opened(tree, clock)
    listed(backend)
    clock.now += 2.0
    (use,) = listed(backend)[301].uses
    assert (use.memory_used, use.sm) == (512 * MIB, None)


def test_memory_on_an_apu_is_that_of_both_regions(tmp_path: Path, clock: HandClock) -> None:
    tree = machine(tmp_path, "phoenix")
    tree.process(2217, {99: (RENDER, info("0000:64:00.0", gfx=1))})
    (use,) = listed(opened(tree, clock))[2217].uses
    assert use.memory_used == (2068 + 8192) * KIB


def test_engines_that_only_encode_or_decode_are_told_apart(
    tmp_path: Path, clock: HandClock
) -> None:
    tree = machine(tmp_path, "rx_6900_xt")
    tree.process(2217, {99: (RENDER, info("0000:0c:00.0", dec=1, enc=1))})
    backend = opened(tree, clock)
    listed(backend)
    clock.now += 2.0
    later = info("0000:0c:00.0", dec=1 + 400_000_000, enc=1 + 100_000_000)
    tree.open_file(2217, 99, RENDER, later)
    (use,) = listed(backend)[2217].uses
    assert (use.decoder, use.encoder) == (20, 5)


def test_an_engine_that_does_both_is_not_taken_for_the_encoder(
    tmp_path: Path, clock: HandClock
) -> None:
    # VCN 4 of RDNA 3 has one queue for both, which the driver counts as "enc".
    tree = machine(tmp_path, "rx_7800_xt", {"ip_discovery/die/0/12/0/major": "4\n"})
    tree.process(2217, {99: (RENDER, info(enc=1))})
    backend = opened(tree, clock)
    listed(backend)
    clock.now += 2.0
    tree.open_file(2217, 99, RENDER, info(enc=1 + 400_000_000))
    (use,) = listed(backend)[2217].uses
    assert (use.decoder, use.encoder) == (None, None)
