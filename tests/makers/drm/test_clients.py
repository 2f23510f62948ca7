"""Which processes use a GPU, and how much of it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from gpumon.makers.drm import clients, holders
from tests.clock import HandClock
from tests.makers.drm.example import MIB, ExampleBackend, add_card, client, node
from tests.makers.drm.test_fdinfo import OLD_AMDGPU
from tests.makers.drm.trees import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpumon.makers.backend import ListedProcess

SECOND = 10**9


class Room:
    """A machine with the GPUs ``0000:03:00.0`` and ``0000:05:00.0``."""

    def __init__(self, root: Path) -> None:
        self.tree = Tree(root)
        self.clock = HandClock()
        for number in (3, 5):
            add_card(self.tree, number)
        self.process = self.tree.process
        self.open_file = self.tree.open_file
        self._backend: ExampleBackend | None = None

    def lists(self, seconds: float = 1.0) -> Mapping[int, ListedProcess]:
        self.clock.now += seconds
        if self._backend is None:
            self._backend = self.tree.backend(ExampleBackend, clock=self.clock)
            self._backend.open()
        listed = self._backend.read().listed
        assert listed is not None
        return listed


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


# Who


def test_a_duplicated_file_counts_once(room: Room) -> None:
    files = {number: (node(3), client(3, 7, vram=10)) for number in (5, 6, 7)}
    room.process(100, files)
    (use,) = room.lists()[100].uses
    assert use.memory_used == 10 * MIB


def test_a_client_of_a_partition_belongs_to_the_gpu(room: Room) -> None:
    room.tree.partition(0, 190)
    room.process(100, {5: ("/dev/dri/renderD190", client(3, 7, vram=10))})
    (use,) = room.lists()[100].uses
    assert (use.gpu_index, use.memory_used) == (0, 10 * MIB)


def test_two_clients_of_one_process_are_added(room: Room) -> None:
    files = {
        5: (node(3), client(3, 7, vram=10)),
        6: ("/dev/dri/card3", client(3, 8, vram=20)),
    }
    room.process(100, files)
    (use,) = room.lists()[100].uses
    assert use.memory_used == 30 * MIB


def test_the_same_number_on_two_gpus_is_two_clients(room: Room) -> None:
    files = {5: (node(3), client(3, 7, vram=10)), 6: (node(5), client(5, 7, vram=20))}
    room.process(100, files)
    uses = room.lists()[100].uses
    assert [(use.gpu_index, use.memory_used) for use in uses] == [(0, 10 * MIB), (1, 20 * MIB)]


def test_an_inherited_file_belongs_to_the_first_process_steadily(room: Room) -> None:
    for pid in (100, 101, 102):
        room.process(pid, {5: (node(3), client(3, 7))})
    for _ in range(3):
        assert set(room.lists()) == {100}
    room.tree.end(100)
    assert set(room.lists()) == {101}


def test_a_display_server_is_named_and_not_the_service_that_opened_the_gpu(room: Room) -> None:
    room.process(100, {5: ("/dev/dri/card3", client(3, 7))}, name="systemd-logind")
    room.process(900, {5: ("/dev/dri/card3", client(3, 7))}, name="gnome-shell")
    assert set(room.lists()) == {900}


def test_clients_without_numbers_are_told_apart(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, None, vram=10))})
    room.process(101, {5: (node(3), client(3, None, vram=20))})
    listed = room.lists()
    assert [listed[pid].uses[0].memory_used for pid in (100, 101)] == [10 * MIB, 20 * MIB]


def test_a_process_that_opens_the_gpu_later_is_found(room: Room) -> None:
    room.process(100, {3: ("/dev/null", "")})
    assert room.lists() == {}
    room.open_file(100, 5, node(3), client(3))
    assert set(room.lists()) == {100}


def test_a_process_that_closes_the_gpu_is_not_listed_any_more(room: Room) -> None:
    folder = room.process(100, {5: (node(3), client(3))})
    assert set(room.lists()) == {100}
    (folder / "fd/5").unlink()
    (folder / "fdinfo/5").unlink()
    room.lists()
    assert room.lists() == {}


def test_a_reused_pid_is_another_process(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, gfx=5 * SECOND))}, start=1000)
    room.lists()
    room.process(100, {3: ("/dev/null", "")}, start=2000)
    room.lists()
    assert room.lists() == {}


def test_a_process_that_ends_meanwhile_is_left_out(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    room.process(100, {5: (node(3), client(3))})
    room.process(101, {5: (node(3), client(3, 2))})
    whole = clients.read_fdinfo

    def ends(path: str) -> bytes:
        if "/100/" in path:
            raise ProcessLookupError
        return whole(path)

    monkeypatch.setattr(clients, "read_fdinfo", ends)
    assert set(room.lists()) == {101}


def test_only_files_of_the_gpus_are_asked(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.process(100, {3: ("/dev/null", ""), 4: ("/home/u/dri/x", ""), 5: (node(3), client(3))})
    others = ("socket:[1234]", "/dev/dri/renderD190", "/home/u/renderD131")
    room.process(101, {number: (path, "") for number, path in enumerate(others, 3)})
    asked: list[str] = []
    whole = clients.read_fdinfo

    def recorded(path: str) -> bytes:
        asked.append(path)
        return whole(path)

    monkeypatch.setattr(clients, "read_fdinfo", recorded)
    room.lists()
    assert [path.partition("/proc/")[2] for path in asked] == ["100/fdinfo/5"]


@pytest.mark.slow
def test_a_process_with_thousands_of_files_is_looked_through_once(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {number: (f"/tmp/{number}", "") for number in range(10, 3000)}
    room.process(100, {**files, 5: (node(3), client(3))})
    looks: list[str] = []
    whole: Callable[[str], dict[int, str]] = holders.drm_files

    def recorded(folder: str) -> dict[int, str]:
        looks.append(folder)
        return whole(folder)

    monkeypatch.setattr(holders, "drm_files", recorded)
    for _ in range(5):
        assert set(room.lists()) == {100}
    assert len([folder for folder in looks if folder.endswith("/100/fd")]) == 1


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        # The kernel tells the number of open files, since Linux 6.2.
        ([7, 7, 7], [3, 3, 3]),
        ([7, 8, 8], [3, 4, 4]),
        ([0, 0, 0], [3, 4, 5]),
    ],
)
def test_files_are_looked_through_again_when_their_number_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], found: list[int]
) -> None:
    """Another file is open at each look, which shows whether the files were looked through."""
    tree = Tree(tmp_path)
    known, now = holders.FileHolders(str(tree.proc)), 1000.0
    descriptors: list[int] = []
    for descriptor, size in enumerate(sizes, 3):
        tree.process(100, {descriptor: (node(3), client(3))})
        status = SimpleNamespace(st_ino=4711, st_ctime_ns=1, st_size=size)
        monkeypatch.setattr(holders, "status_of", lambda _, status=status: status)
        now += 1.0
        descriptors += known.scan(now)[100]
    assert descriptors == found


@pytest.mark.slow
def test_many_processes_are_looked_at_in_turns(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "FIRST_SCAN_SECONDS", 0.0)
    monkeypatch.setattr(holders, "SCAN_SECONDS", 0.002)
    for pid in range(100, 400):
        room.process(pid, {5: (node(3), client(3, pid))} if pid == 100 else {})
    for _ in range(200):
        if room.lists():
            break
    assert set(room.lists()) == {100}


def test_files_that_tell_nothing_are_listed_without_amounts(room: Room) -> None:
    room.process(100, {5: (node(3), "")})
    (use,) = room.lists()[100].uses
    assert (use.memory_used, use.sm) == (None, None)


@pytest.mark.parametrize("text", ["\xff\0" * 5000, "drm-driver:\n", "drm-" * 100_000])
def test_text_that_is_damaged_harms_nobody(room: Room, text: str) -> None:
    room.process(100, {5: (node(3), text)})
    room.process(101, {5: (node(3), client(3))})
    assert 101 in room.lists()


# How much


def test_busy_percent_from_engine_time(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, gfx=10 * SECOND, compute=0, enc=0))})
    (use,) = room.lists()[100].uses
    assert use.sm is None, "a rate needs two readings"
    room.open_file(
        100, 5, node(3), client(3, gfx=10 * SECOND + SECOND // 2, compute=0, enc=SECOND // 5)
    )
    (use,) = room.lists(2.0)[100].uses
    assert (use.sm, use.encoder, use.decoder) == (25, 10, 0)


def test_the_busiest_engine_counts(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, gfx=0, compute=0))})
    room.lists()
    room.open_file(100, 5, node(3), client(3, gfx=SECOND // 10, compute=SECOND * 7 // 10))
    assert room.lists()[100].uses[0].sm == 70


def test_an_engine_that_was_never_used_before_counts_from_zero(room: Room) -> None:
    room.process(100, {5: (node(3), client(3))})
    room.lists()
    room.open_file(100, 5, node(3), client(3, gfx=SECOND // 2))
    assert room.lists()[100].uses[0].sm == 50


def test_several_engines_of_one_name_share_the_time(room: Room) -> None:
    text = client(3, compute=0) + "drm-engine-capacity-compute:\t4\n"
    room.process(100, {5: (node(3), text)})
    room.lists()
    room.open_file(100, 5, node(3), text.replace("compute:\t0 ns", f"compute:\t{2 * SECOND} ns"))
    assert room.lists()[100].uses[0].sm == 50


def test_busy_percent_from_cycles(room: Room) -> None:
    def xe(cycles: int, total: int) -> str:
        return client(3, driver="xe") + (
            f"drm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{total}\n"
            "drm-engine-capacity-ccs:\t2\n"
        )

    room.process(100, {5: (node(3), xe(1000, 1_000_000))})
    room.lists()
    # 800 of 2 x 1000 cycles: 40 %
    room.open_file(100, 5, node(3), xe(1800, 1_001_000))
    process = room.lists()[100]
    assert (process.uses[0].sm, process.type) == (40, "C")


def test_a_counter_that_goes_back_is_no_work(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, gfx=10 * SECOND))})
    room.lists()
    room.open_file(100, 5, node(3), client(3, gfx=4 * SECOND))
    assert room.lists()[100].uses[0].sm == 0
    room.open_file(100, 5, node(3), client(3, gfx=10 * SECOND + SECOND // 4))
    assert room.lists()[100].uses[0].sm == 25


def test_a_process_cannot_be_busier_than_the_whole_engine(room: Room) -> None:
    room.process(100, {5: (node(3), client(3, gfx=0))})
    room.lists()
    room.open_file(100, 5, node(3), client(3, gfx=900 * SECOND))
    assert room.lists()[100].uses[0].sm == 100


def test_percent_of_the_older_form(room: Room) -> None:
    text = OLD_AMDGPU.decode().replace("0000:0a:00.0", "0000:03:00.0")
    room.process(100, {5: (node(3), text)})
    (use,) = room.lists()[100].uses
    assert (use.memory_used, use.sm) == (19960 * 1024, 15)


@pytest.mark.parametrize(
    ("engines", "kind"),
    [
        ({}, "G"),
        ({"gfx": 5}, "G"),
        ({"compute": 5}, "C"),
        ({"gfx": 5, "compute": 5}, "C+G"),
        ({"dec": 5}, "G"),
    ],
)
def test_what_kind_of_work_a_process_does(room: Room, engines: dict[str, int], kind: str) -> None:
    used = "".join(f"drm-engine-{name}:\t{value} ns\n" for name, value in engines.items())
    room.process(100, {5: (node(3), client(3) + used)})
    assert room.lists()[100].type == kind


def test_what_is_resident_counts_where_it_is_told(room: Room) -> None:
    text = client(3, vram=10) + "drm-total-vram:\t90 MiB\ndrm-resident-vram:\t8 MiB\n"
    room.process(100, {5: (node(3), text)})
    assert room.lists()[100].uses[0].memory_used == 8 * MIB


def test_looking_for_holders_survives_a_missing_proc(room: Room) -> None:
    room.tree.proc.rename(room.tree.proc.with_name("elsewhere"))
    assert room.lists() == {}
    assert not os.path.exists(room.tree.proc)  # noqa: PTH110 - one look
