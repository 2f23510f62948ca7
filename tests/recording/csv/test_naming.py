"""What a log is called where nobody named it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from gpumon.recording.csv.files import default_name, log_files, log_path
from tests.build import NOON

if TYPE_CHECKING:
    from pathlib import Path


def test_it_tells_the_machine_and_the_moment() -> None:
    assert re.fullmatch(r"gpumon-ada-07-2023111[45]-\d{6}\.csv", default_name("ada-07", NOON))
    assert default_name("ada-07.cluster.example", NOON) == default_name("ada-07", NOON)


def test_a_machine_without_a_usable_name_is_left_out() -> None:
    assert re.fullmatch(r"gpumon-\d{8}-\d{6}\.csv", default_name("", NOON))
    assert re.fullmatch(r"gpumon-\d{8}-\d{6}\.csv", default_name("../..", NOON))


def test_a_directory_that_is_not_there_yet_is_no_file(tmp_path: Path) -> None:
    asked = f"{tmp_path}/new/"
    assert log_path(asked, "ada-07", NOON) == asked + default_name("ada-07", NOON)
    assert log_path(str(tmp_path / "new"), "ada-07", NOON) == str(tmp_path / "new")


@given(st.text())
def test_whatever_the_machine_is_called_it_is_one_plain_name(host: str) -> None:
    name = default_name(host, NOON)
    assert re.fullmatch(r"gpumon[\w-]*\.csv", name, re.ASCII)
    assert len(name) < 100
    assert log_files(name).gpus.name == name
