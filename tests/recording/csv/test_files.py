"""Which files are one log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpumon.recording.csv.files import (
    LogFiles,
    log_files,
    log_to_read,
    numbered,
    part_numbers,
    parts,
)

if TYPE_CHECKING:
    from pathlib import Path


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def listed(folder: Path, path: str = "run") -> list[tuple[str, str]]:
    found = parts(log_files(folder / path))
    return [(part.gpus.name, part.processes.name) for part in found]


@pytest.mark.parametrize("name", ["run", "run.csv", "run.processes.csv"])
def test_a_log_is_named_by_either_of_its_files_or_by_neither_ending(
    tmp_path: Path, name: str
) -> None:
    expected = LogFiles(tmp_path / "run.csv", tmp_path / "run.processes.csv")

    assert log_files(tmp_path / name) == expected
    assert log_files(str(tmp_path / name)) == expected


def test_a_dot_in_a_name_is_part_of_it(tmp_path: Path) -> None:
    assert log_files(tmp_path / "v1.2").gpus.name == "v1.2.csv"


def test_a_compressed_part_is_a_log_of_its_own(tmp_path: Path) -> None:
    files = log_files(tmp_path / "run.part0001.csv.gz")

    assert (files.gpus.name, files.processes.name) == (
        "run.part0001.csv.gz",
        "run.part0001.processes.csv.gz",
    )


@pytest.mark.parametrize(
    "name",
    [
        "run.part0004",
        "run.part0004.csv.gz",
        "run.part0004.processes.csv.gz",
        "run.part0002.csv",
        "run.csv",
        "run",
    ],
)
def test_any_file_of_a_log_means_the_whole_of_it_to_whoever_reads(
    tmp_path: Path, name: str
) -> None:
    touch(
        tmp_path,
        "run.csv",
        "run.part0002.csv",
        "run.part0004.csv.gz",
        "run.part0004.processes.csv.gz",
    )

    assert log_to_read(tmp_path / name) == log_files(tmp_path / "run.csv")


def test_a_number_in_a_name_makes_no_part(tmp_path: Path) -> None:
    touch(tmp_path, "v1.2.csv", "v1.3.csv", "run.csv", "run.1.csv", "run.1.1.csv", "gpu.1.log")

    for name in ("v1.2.csv", "run.1.csv", "run.part0007.csv"):
        assert log_to_read(tmp_path / name) == log_files(tmp_path / name)
    assert log_to_read(tmp_path / "gpu.1.log").gpus == tmp_path / "gpu.1.log"


def test_parts_go_by_number_and_the_log_itself_is_the_newest(tmp_path: Path) -> None:
    numbers = (10000, 9, 2)
    touch(tmp_path, *(f"run.part{n:04}.csv" for n in numbers), "run.csv")
    touch(tmp_path, "run.part0009.processes.csv")

    assert listed(tmp_path) == [
        ("run.part0002.csv", "run.part0002.processes.csv"),
        ("run.part0009.csv", "run.part0009.processes.csv"),
        ("run.part10000.csv", "run.part10000.processes.csv"),
        ("run.csv", "run.processes.csv"),
    ]


def test_compressed_parts_are_found_and_plain_ones_come_first(tmp_path: Path) -> None:
    touch(tmp_path, "run.part0001.csv.zst", "run.part0001.processes.csv.gz")
    touch(tmp_path, "run.part0002.csv.gz", "run.part0002.csv", "run.part0002.processes.csv.zst")

    assert listed(tmp_path) == [
        ("run.part0001.csv.zst", "run.part0001.processes.csv.gz"),
        ("run.part0002.csv", "run.part0002.processes.csv.zst"),
    ]


def test_what_only_looks_like_a_part_is_none(tmp_path: Path) -> None:
    others = (
        *("run.1.csv", "run.88123.csv", "run.20250101.csv", "run.part1.csv", "run.part001.csv"),
        *("run.part00001.csv", "run.part0000.csv", "run.part1234567890.csv", "run.part000x.csv"),
        *("run.part0001.csv.bak", "runs.part0001.csv", "xrun.part0001.csv", "run.part0001.csv.xz"),
        *("run.part-001.csv", "run.part\u0661\u0661\u0661\u0661.csv", "run.part0001.processes.csv"),
    )
    touch(tmp_path, "run.csv", *others)

    assert listed(tmp_path) == [("run.csv", "run.processes.csv")]


def test_a_file_that_a_rotation_left_under_two_names_is_one_part(tmp_path: Path) -> None:
    touch(tmp_path, "run.csv", "run.part0001.csv")
    (tmp_path / "run.part0002.csv").hardlink_to(tmp_path / "run.csv")

    assert [gpus for gpus, _ in listed(tmp_path)] == ["run.part0001.csv", "run.csv"]


def test_a_name_with_signs_of_a_pattern_means_itself(tmp_path: Path) -> None:
    touch(tmp_path, "r*n[1].part0001.csv", "run1.part0001.csv", "r*n[1].csv")

    assert [gpus for gpus, _ in listed(tmp_path, "r*n[1]")] == [
        "r*n[1].part0001.csv",
        "r*n[1].csv",
    ]


def test_where_there_is_nothing_there_are_no_parts(tmp_path: Path) -> None:
    assert listed(tmp_path) == []
    assert listed(tmp_path / "nowhere") == []


def test_a_number_that_any_file_has_is_in_use(tmp_path: Path) -> None:
    touch(tmp_path, "run.part0003.csv.gz", "run.part0012.processes.csv")
    files = log_files(tmp_path / "run")

    assert part_numbers(files) == [3, 12]
    assert numbered(files, 13) == log_files(tmp_path / "run.part0013.csv")
