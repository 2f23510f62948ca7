"""``gpumon.snapshot()``: what a program gets, and what it looks like."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser

import pandas
import pytest

import gpumon
from tests.command import run_gpumon
from tests.driver import GIB, Driver, Owner

pytestmark = pytest.mark.usefixtures("driver")


def test_it_has_the_gpus_and_whose_they_are(driver: Driver) -> None:
    driver.cards[1].fan_speed = None
    now = gpumon.snapshot()
    assert [gpu.index for gpu in now.gpus] == [0, 1, 2]
    assert now.gpus[0].memory_used == 30 * GIB
    assert now.gpus[1].fan_speed is None
    assert now.gpus[1].unknown["fan_speed"] == "not supported"
    (own,) = (process for process in now.processes if process.id.pid == os.getpid())
    assert (own.memory_used, own.gpu_indices) == (10 * GIB, (0,))
    assert own.place is not None
    assert repr(now).endswith(": 3 GPUs, 2 processes>")
    assert str(now).splitlines()[0].startswith(" gpumon ")


def test_as_a_dictionary_it_is_the_json_of_the_command(driver: Driver) -> None:
    driver.set_clock(5.0)
    printed = run_gpumon("snapshot", "--format", "json", env=driver.env())
    theirs, ours = json.loads(printed.stdout), gpumon.snapshot().to_dict()
    assert set(theirs) == set(ours)
    moving = re.compile(r"_unix_seconds$|^energy|^pcie_.x|^nvlink_.x")
    for one, other in zip(theirs["gpus"], ours["gpus"], strict=True):
        assert {key: value for key, value in one.items() if not moving.search(key)} == {
            key: value for key, value in other.items() if not moving.search(key)
        }
    assert {one["pid"] for one in theirs["processes"]} == {one["pid"] for one in ours["processes"]}


def test_gpus_are_named_as_on_the_command_line() -> None:
    uuid = gpumon.snapshot(2).gpus[0].uuid
    assert [gpu.index for gpu in gpumon.snapshot("0,2").gpus] == [0, 2]
    assert [gpu.index for gpu in gpumon.snapshot([0, uuid]).gpus] == [0, 2]
    assert [gpu.index for gpu in gpumon.snapshot(uuid[:12]).gpus] == [2]
    with pytest.raises(gpumon.GpuError, match="no GPU 7"):
        gpumon.snapshot(7)
    with pytest.raises(ValueError, match="cannot read 'x'"):
        gpumon.snapshot("x")


def test_it_may_be_taken_while_an_event_loop_runs() -> None:
    async def cell() -> int:
        return len(gpumon.snapshot().gpus)

    assert asyncio.run(cell()) == 3


def test_a_frame_has_a_row_for_each_gpu_or_use_and_unknown_is_na(driver: Driver) -> None:
    driver.cards[1].fan_speed = None
    driver.cards[1].processes = [Owner(os.getpid(), memory=None)]
    now = gpumon.snapshot()
    gpus, uses = now.to_pandas(), now.to_pandas(processes=True)
    assert gpus["memory_used_bytes"].iloc[0] == 30 * GIB
    assert gpus["fan_speed_percent"].isna()[1]
    assert len(uses) == 3
    own = uses[uses["pid"] == os.getpid()].sort_values("gpu_index")
    assert own["memory_used_bytes"].iloc[0] == 10 * GIB
    assert own["memory_used_bytes"].iloc[1] is pandas.NA


def test_a_frame_without_rows_has_the_same_columns(driver: Driver) -> None:
    full = gpumon.snapshot().to_pandas(processes=True)
    driver.cards[0].processes = []
    empty = gpumon.snapshot().to_pandas(processes=True)
    assert len(empty) == 0
    assert list(empty.columns) == list(full.columns)


def test_it_can_be_printed_where_only_ascii_can_be(program: Callable[..., str]) -> None:
    printed = program("import gpumon; print(gpumon.snapshot())", PYTHONIOENCODING="ascii")
    assert "30.0/79.6G" in printed
    assert printed.isascii()


class _Tags(HTMLParser):
    """The tags of a text, and the text itself."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_a_table_whatever_the_names_are(
    driver: Driver, program: Callable[..., str]
) -> None:
    driver.cards[0].name = b"<script>alert(1)</script>\x1b[31m"
    driver.cards[1].memory_used = None
    code = (
        "import gpumon, os, subprocess, sys, time\n"
        "print(gpumon.snapshot()._repr_html_())  # the whole table"
    )
    shown = _Tags()
    shown.feed(program(code))
    assert shown.tags == {"div", "b", "table", "tr", "th", "td", "code"}
    assert "<script>" in shown.text
    assert "\x1b" not in shown.text
    assert "30.0/" in shown.text
    assert "–" in shown.text
