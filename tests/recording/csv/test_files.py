"""Which files are one log, and what they are called where nobody named them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.recording.csv.files import (
    LogFiles,
    default_name,
    log_files,
    log_path,
    log_to_read,
    numbered,
    part_numbers,
    parts,
)
from tests.build import NOON


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def listed(folder: Path, path: str = "run") -> list[tuple[str, str]]:
    found = parts(log_files(folder / path))
    return [(part.gpus.name, part.processes.name) for part in found]


@pytest.mark.parametrize(
    ("name", "gpus", "processes"),
    [
        ("run", "run.csv", "run.processes.csv"),
        ("run.csv", "run.csv", "run.processes.csv"),
        ("run.processes.csv", "run.csv", "run.processes.csv"),
        ("v1.2", "v1.2.csv", "v1.2.processes.csv"),
        ("run.part0001.csv.gz", "run.part0001.csv.gz", "run.part0001.processes.csv.gz"),
    ],
)
def test_a_log_is_named_by_either_of_its_files_or_by_neither_ending(
    tmp_path: Path, name: str, gpus: str, processes: str
) -> None:
    expected = LogFiles(tmp_path / gpus, tmp_path / processes)
    assert log_files(tmp_path / name) == log_files(str(tmp_path / name)) == expected


PART = "run.part0004"


@pytest.mark.parametrize(
    "name",
    [PART, f"{PART}.csv.gz", f"{PART}.processes.csv.gz", "run.part0002.csv", "run.csv", "run"],
)
def test_any_file_of_a_log_means_the_whole_of_it_to_a_reader(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "run.csv", "run.part0002.csv", f"{PART}.csv.gz", f"{PART}.processes.csv.gz")
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
    assert [gpus for gpus, _ in listed(tmp_path, "r*n[1]")] == ["r*n[1].part0001.csv", "r*n[1].csv"]


def test_where_there_is_nothing_there_are_no_parts(tmp_path: Path) -> None:
    assert listed(tmp_path) == listed(tmp_path / "nowhere") == []


def test_a_number_that_any_file_has_is_in_use(tmp_path: Path) -> None:
    touch(tmp_path, "run.part0003.csv.gz", "run.part0012.processes.csv")
    files = log_files(tmp_path / "run")
    assert part_numbers(files) == [3, 12]
    assert numbered(files, 13) == log_files(tmp_path / "run.part0013.csv")


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("ada-07", "-ada-07"),
        ("ada-07.cluster.example", "-ada-07"),
        # There is no usable name.
        ("", ""),
        ("../..", ""),
    ],
)
def test_a_log_that_nobody_named_tells_the_machine_and_the_moment(host: str, named: str) -> None:
    assert re.fullmatch(rf"gpumon{named}-2023111[45]-\d{{6}}\.csv", default_name(host, NOON))


def test_a_directory_that_is_not_there_yet_is_no_file(tmp_path: Path) -> None:
    asked = f"{tmp_path}/new/"
    assert log_path(asked, "ada-07", NOON) == asked + default_name("ada-07", NOON)
    assert log_path(str(tmp_path / "new"), "ada-07", NOON) == str(tmp_path / "new")


@given(st.text())
def test_whatever_the_machine_is_called_its_log_is_one_plain_name(host: str) -> None:
    name = default_name(host, NOON)
    assert re.fullmatch(r"gpumon[\w-]*\.csv", name, re.ASCII)
    assert len(name) < 100
    assert log_files(name).gpus.name == name
