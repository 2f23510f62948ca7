"""Which processes use a GPU, and how much of it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpumon.makers.drm import clients, holders
from tests.makers.drm.example import MIB, ExampleBackend, add_card, client, node
from tests.makers.drm.test_fdinfo import OLD_AMDGPU
from tests.makers.drm.trees import SampledTree, record

SECOND = 10**9
NULL = ("/dev/null", "")


@pytest.fixture
def tree(tmp_path: Path) -> SampledTree:
    """A machine with the GPUs ``0000:03:00.0`` and ``0000:05:00.0``."""
    tree = SampledTree(tmp_path, ExampleBackend)
    for number in (3, 5):
        add_card(tree, number)
    return tree


# Who


USES: dict[str, tuple[dict[int, tuple[str, str]], list[tuple[int, int | None]]]] = {
    "a duplicated file counts once": (
        {number: (node(3), client(3, 7, vram=10)) for number in (5, 6, 7)},
        [(0, 10 * MIB)],
    ),
    "a client of a partition belongs to the GPU": (
        {5: ("/dev/dri/renderD190", client(3, 7, vram=10))},
        [(0, 10 * MIB)],
    ),
    "two clients of one process are added": (
        {5: (node(3), client(3, 7, vram=10)), 6: ("/dev/dri/card3", client(3, 8, vram=20))},
        [(0, 30 * MIB)],
    ),
    "the same number on two GPUs is two clients": (
        {5: (node(3), client(3, 7, vram=10)), 6: (node(5), client(5, 7, vram=20))},
        [(0, 10 * MIB), (1, 20 * MIB)],
    ),
    "files that tell nothing are listed without amounts": ({5: (node(3), "")}, [(0, None)]),
    "what is resident counts where it is told": (
        {5: (node(3), client(3) + "drm-total-vram:\t90 MiB\ndrm-resident-vram:\t8 MiB\n")},
        [(0, 8 * MIB)],
    ),
}


@pytest.mark.parametrize(("files", "uses"), USES.values(), ids=USES)
def test_the_clients_of_a_process_are_its_uses(
    tree: SampledTree, files: dict[int, tuple[str, str]], uses: list[tuple[int, int | None]]
) -> None:
    tree.partition(0, 190)
    tree.process(100, files)
    found = tree.lists()[100].uses
    assert [(use.gpu_index, use.memory_used) for use in found] == uses
    assert {use.sm for use in found} == {None}, "a rate needs two readings"


def test_an_inherited_file_belongs_to_the_first_process_steadily(tree: SampledTree) -> None:
    for pid in (100, 101, 102):
        tree.process(pid, {5: (node(3), client(3, 7))})
    for _ in range(3):
        assert set(tree.lists()) == {100}
    tree.end(100)
    assert set(tree.lists()) == {101}


def test_a_display_server_is_named_not_the_service_that_opened_the_gpu(tree: SampledTree) -> None:
    for pid, name in ((100, "systemd-logind"), (900, "gnome-shell")):
        tree.process(pid, {5: ("/dev/dri/card3", client(3, 7))}, name=name)
    assert set(tree.lists()) == {900}


def test_clients_without_numbers_are_told_apart(tree: SampledTree) -> None:
    for pid, vram in ((100, 10), (101, 20)):
        tree.process(pid, {5: (node(3), client(3, None, vram=vram))})
    listed = tree.lists()
    assert [listed[pid].uses[0].memory_used for pid in (100, 101)] == [10 * MIB, 20 * MIB]


def test_a_process_is_listed_from_opening_the_gpu_until_closing_it(tree: SampledTree) -> None:
    folder = tree.process(100, {3: NULL})
    assert tree.lists() == {}
    tree.open_file(100, 5, node(3), client(3))
    assert set(tree.lists()) == {100}
    (folder / "fd/5").unlink()
    (folder / "fdinfo/5").unlink()
    tree.lists()
    assert tree.lists() == {}


def test_a_reused_pid_is_another_process(tree: SampledTree) -> None:
    tree.process(100, {5: (node(3), client(3, gfx=5 * SECOND))}, start=1000)
    tree.lists()
    tree.process(100, {3: NULL}, start=2000)
    tree.lists()
    assert tree.lists() == {}


def test_a_process_that_ends_meanwhile_is_left_out(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.process(100, {5: (node(3), client(3))})
    tree.process(101, {5: (node(3), client(3, 2))})
    record(monkeypatch, clients, "read_fdinfo", refused="/100/")
    assert set(tree.lists()) == {101}


def test_only_files_of_gpus_are_asked(tree: SampledTree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.process(100, {3: NULL, 4: ("/home/u/dri/x", ""), 5: (node(3), client(3))})
    others = ("socket:[1234]", "/dev/dri/renderD190", "/home/u/renderD131")
    tree.process(101, {number: (path, "") for number, path in enumerate(others, 3)})
    asked = record(monkeypatch, clients, "read_fdinfo")
    tree.lists()
    assert [path.partition("/proc/")[2] for path in asked] == ["100/fdinfo/5"]


@pytest.mark.slow
def test_a_process_with_thousands_of_files_is_looked_through_once(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {number: (f"/tmp/{number}", "") for number in range(10, 3000)}
    tree.process(100, {**files, 5: (node(3), client(3))})
    looks = record(monkeypatch, holders, "drm_files")
    for _ in range(5):
        assert set(tree.lists()) == {100}
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
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch, sizes: list[int], found: list[int]
) -> None:
    """Another file is open at each look, which shows whether the files were looked through."""
    known = holders.FileHolders(str(tree.proc))
    descriptors: list[int] = []
    for descriptor, size in enumerate(sizes, 3):
        tree.process(100, {descriptor: (node(3), client(3))})
        status = SimpleNamespace(st_ino=4711, st_ctime_ns=1, st_size=size)
        monkeypatch.setattr(holders, "status_of", lambda _, status=status: status)
        descriptors += known.scan(1000.0 + descriptor)[100]
    assert descriptors == found


@pytest.mark.slow
def test_many_processes_are_looked_at_in_turns(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "FIRST_SCAN_SECONDS", 0.0)
    monkeypatch.setattr(holders, "SCAN_SECONDS", 0.002)
    for pid in range(100, 400):
        tree.process(pid, {5: (node(3), client(3, pid))} if pid == 100 else {})
    for _ in range(200):
        if tree.lists():
            break
    assert set(tree.lists()) == {100}


@pytest.mark.parametrize("text", ["\xff\0" * 5000, "drm-driver:\n", "drm-" * 100_000])
def test_text_that_is_damaged_harms_nobody(tree: SampledTree, text: str) -> None:
    tree.process(100, {5: (node(3), text)})
    tree.process(101, {5: (node(3), client(3))})
    assert 101 in tree.lists()


def test_looking_for_holders_survives_a_missing_proc(tree: SampledTree) -> None:
    tree.proc.rename(tree.proc.with_name("elsewhere"))
    assert tree.lists() == {}
    assert not os.path.exists(tree.proc)  # noqa: PTH110 - one look


# How much


def xe(cycles: int, total: int) -> str:
    return client(3, driver="xe") + (
        f"drm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t2\n"
    )


SHARES: dict[str, tuple[list[str], list[tuple[int, int, int]]]] = {
    "of engine time": (
        [client(3, gfx=10 * SECOND + n * SECOND // 2, enc=n * SECOND // 5) for n in (0, 1)],
        [(25, 10, 0)],
    ),
    "of the busiest engine": (
        [client(3, gfx=n * SECOND // 10, compute=n * SECOND * 7 // 10) for n in (0, 1)],
        [(35, 0, 0)],
    ),
    "of an engine never used before": ([client(3), client(3, gfx=SECOND // 2)], [(25, 0, 0)]),
    "of several engines of one name": (
        [client(3, compute=n * SECOND) + "drm-engine-capacity-compute:\t4\n" for n in (0, 2)],
        [(25, 0, 0)],
    ),
    "of 2 x 1000 cycles": ([xe(1000, 1_000_000), xe(1800, 1_001_000)], [(40, 0, 0)]),
    "of a counter that goes back": (
        [client(3, gfx=n * SECOND // 2) for n in (20, 8, 21)],
        [(0, 0, 0), (25, 0, 0)],
    ),
    "no more than the engine": ([client(3, gfx=n * SECOND) for n in (0, 900)], [(100, 0, 0)]),
}
"""What ``fdinfo`` tells every two seconds, and the shares of SMs, encoder and decoder."""


@pytest.mark.parametrize(("texts", "shares"), SHARES.values(), ids=SHARES)
def test_how_busy_a_process_keeps_the_gpu(
    tree: SampledTree, texts: list[str], shares: list[tuple[int, int, int]]
) -> None:
    first, *later = texts
    tree.process(100, {5: (node(3), first)})
    assert tree.use(100).sm is None, "a rate needs two readings"
    found = []
    for text in later:
        tree.open_file(100, 5, node(3), text)
        use = tree.use(100, 2.0)
        found.append((use.sm, use.encoder, use.decoder))
    assert found == shares


def test_percent_of_the_older_form(tree: SampledTree) -> None:
    text = OLD_AMDGPU.decode().replace("0000:0a:00.0", "0000:03:00.0")
    tree.process(100, {5: (node(3), text)})
    use = tree.use(100)
    assert (use.memory_used, use.sm) == (19960 * 1024, 15)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (client(3), "G"),
        (client(3, gfx=5), "G"),
        (client(3, compute=5), "C"),
        (client(3, gfx=5, compute=5), "C+G"),
        (client(3, dec=5), "G"),
        (xe(1000, 1_000_000), "C"),
    ],
    ids=["nothing", "gfx", "compute", "gfx and compute", "dec", "cycles of compute engines"],
)
def test_what_kind_of_work_a_process_does(tree: SampledTree, text: str, kind: str) -> None:
    tree.process(100, {5: (node(3), text)})
    assert tree.lists()[100].type == kind
