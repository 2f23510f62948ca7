"""A log has the jobs that each GPU is allocated to, and its accidents; a replay shows them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.availability import allocated_to_others
from gpumon.model.accidents import ACCIDENTS_KEPT, TEXT_BYTES, Accident, AccidentKind
from gpumon.model.allocations import Allocation, allocations_of, unplaced_of
from gpumon.model.snapshot import Gpu, MigInstance, Snapshot
from gpumon.recording.csv.accident_cells import accidents_cell, parse_accidents
from gpumon.recording.csv.allocation_cells import (
    AllocatedGpu,
    allocation_count,
    allocations_in_row,
    jobs_cell,
    parse_jobs,
    parse_users,
    sample_allocations,
    users_cell,
)
from gpumon.recording.csv.columns import TEXT_CHARACTERS
from gpumon.recording.recording import EventKind
from tests.build import NOON, gpu, snapshot
from tests.recording.csv.reading import (
    change_cells,
    drop_columns,
    opened,
    read_whole,
    sample_at,
    write_log,
)
from tests.recording.csv.several import of_host, write_several

ANN = Allocation("slurm", "88123", "ann", ("GPU-0", "GPU-1"), since=NOON - 60.0)
BO = Allocation("slurm", "88_4", "bo", ("GPU-1",), is_share=True, number="92")
POD = Allocation("kubernetes", "ml/train-0", None, ("GPU-3",))
PRIVATE = Allocation("slurm", None, None, ("GPU-2",))
SOMEWHERE = Allocation("slurm", "91", "cy", (), unplaced=2)
UNKNOWN = Allocation("slurm", unplaced=None)


def sample(
    *allocations: Allocation, time: float = NOON, accidents: tuple[Accident, ...] = ()
) -> Snapshot:
    """A machine of four GPUs with these allocations and accidents."""
    taken = snapshot(time, *(gpu(index=index) for index in range(4)))
    return replace(taken, allocations=allocations, accidents=accidents)


CELLS = ("allocations", "allocated.jobs", "allocated.users")


def cells(path: Path) -> list[tuple[str, ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [tuple(row[name] for name in CELLS) for row in csv.DictReader(file)]


def test_each_row_has_the_jobs_of_its_gpu_and_their_users(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [sample(ANN, BO, PRIVATE)])
    assert cells(path) == [
        ("1", "slurm 88123", "ann"),
        ("2", "slurm 88123;slurm 88_4=92", "ann;bo"),
        ("1", "slurm -", ""),
        ("0", "", ""),
    ]
    path = write_log(tmp_path / "pods.csv", [sample(POD)])
    assert cells(path)[3] == ("1", "kubernetes ml/train-0", "")


def test_a_replay_has_the_allocations_of_each_sample_as_far_as_the_rows_say(tmp_path: Path) -> None:
    samples = [
        sample(ANN, BO, PRIVATE, POD),
        sample(time=NOON + 1),
        sample(BO, SOMEWHERE, time=NOON + 2),
        sample(UNKNOWN, time=NOON + 3),
        replace(sample(time=NOON + 4), allocations=None),
    ]
    path = write_log(tmp_path / "run.csv", samples)
    assert [sample_at(path, NOON + second).allocations for second in range(5)] == [
        (replace(ANN, since=None), replace(BO, is_share=False), PRIVATE, POD),
        (),
        (replace(SOMEWHERE, unplaced=None), replace(BO, is_share=False)),
        (UNKNOWN,),
        None,
    ]


def test_a_gpu_that_may_be_a_jobs_is_not_free_in_a_replay(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [sample(ANN, SOMEWHERE)])
    assert cells(path)[2:] == [("", "slurm 91?", "cy")] * 2
    shown = sample_at(path)
    for each in shown.gpus:
        assert allocated_to_others(shown.allocations, each, NOON) is not None


def test_a_job_with_mig_devices_has_these_alone_in_a_replay(tmp_path: Path) -> None:
    devices = tuple(MigInstance(f"MIG-{index}", index) for index in range(3))
    divided = gpu(index=0, mig=devices, mig_mode=True)
    job = Allocation("slurm", "7", "ann", ("MIG-0", "MIG-2"))
    path = write_log(tmp_path / "run.csv", [replace(snapshot(NOON, divided), allocations=(job,))])
    assert cells(path) == [("1", "slurm 7 mig 0,2", "ann")]
    shown = sample_at(path)
    assert (shown.allocations, shown.gpus[0].mig) == ((job,), devices)


def test_each_host_of_a_log_has_its_own_allocations(tmp_path: Path) -> None:
    of_hosts = {"gpu-01": (ANN,), "gpu-02": (), "gpu-03": None}
    ticks = [
        {host: replace(of_host(host, second), allocations=own) for host, own in of_hosts.items()}
        for second in range(3)
    ]
    path = write_several(tmp_path / "run.csv", ticks)
    found = [sample_at(path, NOON + 2, host).allocations for host in of_hosts]
    assert found == [(replace(ANN, since=None),), (), None]


def test_a_log_of_an_older_version_says_nothing_of_allocations(tmp_path: Path) -> None:
    path = write_log(tmp_path / "run.csv", [sample(ANN)])
    drop_columns(path, *CELLS, "accidents")
    assert sample_at(path).allocations is None


@pytest.mark.parametrize(
    ("row", "torn"),
    [
        (0, ("1", "slurm", "ann")),
        (0, ("1", "slurm 7=", "ann")),
        (0, ("1", "", "ann")),
        (0, ("", "", "")),
        (0, ("x", "slurm 88123 mig", "ann")),
        (1, ("", "", "")),
        (1, ("-1", ";;", "")),
    ],
)
def test_a_gpu_whose_cells_are_damaged_is_not_free(
    row: int, torn: tuple[str, ...], tmp_path: Path
) -> None:
    path = write_log(tmp_path / "run.csv", [sample(replace(ANN, devices=("GPU-0",)))])
    change_cells(path, *((row, *cell) for cell in zip(CELLS, torn, strict=True)))
    shown = sample_at(path)
    assert allocated_to_others(shown.allocations, shown.gpus[row], NOON) is not None
    # The others are as they were, as far as another does not have the GPU instead.
    assert allocations_of(shown.allocations, shown.gpus[2]) == []


TEXTS = ["", "-", "?", ";", " ", "=", "=1+1", "a;b", "1 mig 0", "\x1b[2J", "\u0301", "\ud800"]
hostile = st.text(max_size=30) | st.sampled_from([*TEXTS, "x" * 5000])
jobs_of_any_kind = st.lists(
    st.builds(
        Allocation,
        scheduler=hostile,
        job=st.none() | hostile,
        user=st.none() | hostile,
        number=st.none() | hostile,
        devices=st.sampled_from([(), ("GPU-0",), ("GPU-1",), ("GPU-0", "GPU-1")]),
        unplaced=st.sampled_from([0, 1, None]),
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(allocations=jobs_of_any_kind)
def test_names_of_any_kind_make_cells_that_are_read_back(allocations: list[Allocation]) -> None:
    cards: list[Gpu] = [gpu(index=index) for index in range(2)]
    rows = []
    for card in cards:
        listed = allocations_in_row(allocations, card)
        jobs, users = jobs_cell(listed, card), users_cell(listed)
        assert (jobs + users).isprintable()
        assert not jobs.startswith(("=", "+", "@", "-"))
        assert not users.startswith(("=", "+", "@", "-"))
        row = AllocatedGpu(
            allocation_count(allocations, card),
            parse_jobs(jobs) if jobs else None,
            parse_users(users) if users else None,
        )
        assert len(row.each()) == len(listed)
        rows.append((card, row))
    found = sample_allocations(rows)
    for card in cards:
        # No GPU that is somebody's, or may be, becomes free.
        assert bool(allocations_of(found, card)) == bool(allocations_of(allocations, card))
        if unplaced_of(allocations) and not allocations_of(allocations, card):
            assert unplaced_of(found)


def test_more_jobs_than_a_cell_takes_are_left_out_whole() -> None:
    many = [Allocation("slurm", str(10**9 + job), "ann" * 30, ("GPU-0",)) for job in range(500)]
    card = gpu()
    jobs, users = jobs_cell(many, card), users_cell(many)
    assert max(len(jobs), len(users)) <= TEXT_CHARACTERS
    assert allocation_count(many, card) == 500
    row = AllocatedGpu(500, parse_jobs(jobs), parse_users(users))
    found = [(job.job, user) for job, user in row.each()]
    assert len(found) > 80
    assert {job for job, _ in found} <= {each.job for each in many}
    assert {user for _, user in found} == {"ann" * 30, None}


# Accidents

XID = Accident(NOON + 0.5, AccidentKind.ERROR_CODE, "GPU-1", 31, 41233, "python", "00000008", "MMU")
KILL = Accident(
    NOON + 0.75, AccidentKind.OUT_OF_MEMORY, None, None, 7, "a,b", cgroup="/job", memory=2**35
)
HOSTILE = replace(XID, process_name="=1+1\x1b[2J\u202e\x9b\x7f", text='",\n\r\0' + "é" * TEXT_BYTES)


def test_accidents_stand_in_the_row_of_their_gpu_and_come_back(tmp_path: Path) -> None:
    both = (XID, KILL)
    each = [(), both, both, ()]
    samples = [sample(time=NOON + at, accidents=known) for at, known in enumerate(each)]
    path = write_log(tmp_path / "run.csv", samples)
    with path.open(encoding="utf-8", newline="") as file:
        found = [row["accidents"] for row in csv.DictReader(file)]
    in_rows = [True, True, False, False]
    assert [cell != "[]" for cell in found] == [False] * 4 + in_rows * 2 + [False] * 4
    assert "python" in found[5]
    assert [sample_at(path, NOON + at).accidents for at in range(4)] == each
    with opened(path) as log:
        read_whole(log)
        events = [event for event in log.events(NOON, NOON + 9) if event.accident]
    assert {event.kind for event in events} == {EventKind.ACCIDENT}
    assert [event.accident for event in events] == [XID, KILL]


def test_hostile_texts_of_accidents_are_the_same_afterwards_and_act_on_nothing() -> None:
    cell = accidents_cell((HOSTILE,))
    assert cell.isascii()
    assert cell.isprintable()
    assert parse_accidents(cell) == (HOSTILE,)


def test_a_cell_of_accidents_is_bounded_and_keeps_the_newest() -> None:
    many = [replace(HOSTILE, time=NOON + index) for index in range(100)]
    cell = accidents_cell(many)
    assert len(cell) <= 8000
    assert parse_accidents(cell)[-1] == many[-1]
    short = [Accident(NOON, AccidentKind.RESET)] * 99
    assert len(parse_accidents(accidents_cell(short))) == ACCIDENTS_KEPT


@pytest.mark.parametrize(
    "cell",
    ["x", "[", "[[]]", "{}", '[["now","reset"]]', '[[1e99,"reset"]]', "[" * 9999, '["\\ud800"]'],
)
def test_a_damaged_cell_is_no_accident(cell: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".*"):
        parse_accidents(cell)
    path = write_log(tmp_path / "run.csv", [sample(accidents=(replace(XID, time=NOON - 1),))])
    change_cells(path, (1, "accidents", cell))
    read = sample_at(path)
    assert (read.accidents, len(read.gpus)) == ((), 4)
