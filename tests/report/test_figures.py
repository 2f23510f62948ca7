"""What a report says is what another computation finds in the same log."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pytest

from gpumon.recording.csv.files import log_files
from gpumon.report.figures import BY
from gpumon.text.formatting import cell_width
from tests.driver import GIB, Driver, Owner, h100, rtx4090
from tests.makers.nvml_room import Room
from tests.report.logs import Sample, chaos, eventful_night, lines_of, printed, report, write_log
from tests.report.witness import Witness

pytestmark = pytest.mark.slow

OfNight: TypeAlias = "Callable[[str], dict[str, Any]]"

START = 1_760_000_000.0


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return list(eventful_night(START))


@pytest.fixture(scope="module")
def night(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_log(tmp_path_factory.mktemp("night") / "night.csv", samples)


@pytest.fixture(scope="module")
def of_night(night: Path) -> OfNight:
    """The report of the night by something; each is made once."""
    return functools.cache(lambda by: report(night, by=by))


@pytest.fixture(scope="module")
def short_night(samples: list[Sample], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same night with every twentieth sample."""
    return write_log(tmp_path_factory.mktemp("short") / "night.csv", samples[::20])


@pytest.fixture(scope="module")
def witness(night: Path) -> Witness:
    return Witness(night, log_files(night).processes)


def assert_same(said: dict[str, Any], expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        if value is None:
            # Hours of a card of which nothing was known are unknown too.
            assert said[key] is None, key
        elif not (value == 0 and said[key] is None):
            rounding = 1e-3 if key.endswith("percent") else 2e-6
            assert said[key] == pytest.approx(value, rel=1e-6, abs=rounding), key


def assert_same_gpu(said: dict[str, Any], witness: Witness, index: int) -> None:
    assert_same(said, witness.card(index))
    # Who is on a GPU that is lost is not known to be nobody.
    is_lost = said["lost_hours"] == said["covered_hours"]
    expected = None if is_lost else pytest.approx(witness.gpu_hours(index), abs=1e-5)
    assert said["gpu_hours"] == expected


def test_the_figures_of_gpus_are_those_of_the_witness(of_night: OfNight, witness: Witness) -> None:
    lines = lines_of(of_night("gpu"), "index")
    assert sorted(lines) == list(range(8))
    for index, line in lines.items():
        assert_same_gpu(line, witness, index)


@pytest.mark.parametrize(("by", "column"), [("user", "user"), ("process", "pid")])
def test_the_figures_of_every_subject_are_those_of_the_witness(
    of_night: OfNight, witness: Witness, by: str, column: str
) -> None:
    lines = lines_of(of_night(by), column)
    assert set(lines) == set(witness.listed[column])
    for name, line in lines.items():
        assert_same(line, witness.subject(column, name))


def test_what_a_user_has_is_what_the_jobs_of_that_user_have(of_night: OfNight) -> None:
    users, jobs = lines_of(of_night("user"), "user"), of_night("job")["lines"]
    for name, line in users.items():
        # A job without processes has no energy.
        energy = sum(job["energy_kwh"] or 0 for job in jobs if job["user"] == name)
        assert energy == pytest.approx(line["energy_kwh"], abs=1e-5)


def test_the_energy_of_the_cards_is_all_given_out(of_night: OfNight) -> None:
    cards, users = of_night("gpu"), of_night("user")
    # The card that fell off the bus has none, one tells none for a while; nobody gets more.
    given = users["total"]["energy_kwh"] + users["energy_without_process_kwh"]
    assert given == pytest.approx(cards["total"]["energy_kwh"], abs=1e-5)


def test_errors_are_those_that_came_while_it_was_logged(of_night: OfNight) -> None:
    lines = lines_of(of_night("gpu"), "index")
    assert lines[5]["xids"] == {"31": 1, "79": 1}
    assert lines[2]["ecc_uncorrected"] == 3
    assert lines[2]["xids"] == {}
    assert lines[6]["lost_hours"] == pytest.approx(lines[6]["covered_hours"])
    users = lines_of(of_night("user"), "user")
    assert users["chen"]["xids"] == {"31": 1, "79": 1}
    assert users["bo"]["xids"] == {}


@pytest.mark.parametrize("width", [80, 100, 160, 200])
def test_eight_cards_and_their_users_fit_the_terminal(short_night: Path, width: int) -> None:
    for by in BY:
        shown = printed(short_night, by=by, width=width)
        assert max(cell_width(row) for row in shown.splitlines()) <= width
        assert "kWh" in shown


def test_what_is_written_by_gpumon_has_no_damaged_lines(of_night: OfNight) -> None:
    for by in BY:
        assert not any("damaged" in note for note in of_night(by)["notes"])


def test_power_stands_in_where_the_counter_does_not_tell(of_night: OfNight) -> None:
    lines = lines_of(of_night("gpu"), "index")
    assert lines[0]["energy_source"] == "counter+power"  # the driver was loaded anew in the gap
    assert lines[3]["energy_known"] == 1
    assert lines[4]["energy_known"] == pytest.approx(1 - 500 / 5306.5, abs=0.0005)
    assert lines[6]["energy_kwh"] is None


@pytest.mark.parametrize("seed", range(4))
def test_no_pace_and_no_value_is_too_odd(seed: int, tmp_path: Path) -> None:
    log = write_log(tmp_path / "chaos.csv", chaos(seed, START))
    witness = Witness(log, log_files(log).processes)
    for index, line in lines_of(report(log, by="gpu"), "index").items():
        assert line["gaps"] > 0, "else this tests nothing"
        assert_same_gpu(line, witness, index)
    for by, column in (("user", "user"), ("process", "pid")):
        for name, line in lines_of(report(log, by=by), column).items():
            assert_same(line, witness.subject(column, name))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten minutes of two cards of the simulated driver, read as from a real one."""
    folder = tmp_path_factory.mktemp("recorded")
    driver = Driver([h100(), rtx4090()])
    driver.attach()
    room = Room(driver, folder, folder, folder / "kmsg")
    big, small = driver.cards
    for card in driver.cards:
        card.latency("nvmlDeviceGetPcieThroughput", 0.0)
    big.wave("utilization_gpu", 50, 40, 120.0)
    big.processes = [Owner(4711, memory=2 * GIB, sm=30), Owner(4712, memory=GIB, sm=10)]
    samples = []
    try:
        room.open()
        for second in range(600):
            driver.set_clock(float(second))
            if second == 200:
                small.processes = [Owner(4713, memory=GIB, sm=0)]
            if second == 300:
                big.processes = [Owner(4711, memory=6 * GIB, sm=70)]
            samples.append((room.sample(1.0), float(second)))
    finally:
        room.close()
    return write_log(folder / "recorded.csv", samples)


def test_the_figures_of_a_recording_are_those_of_the_witness(recorded: Path) -> None:
    witness = Witness(recorded, log_files(recorded).processes)
    for index, line in lines_of(report(recorded, by="gpu"), "index").items():
        assert line["covered_hours"] == pytest.approx(599 / 3600)
        assert_same_gpu(line, witness, index)
    processes = lines_of(report(recorded, by="process"), "pid")
    assert set(processes) == {4711, 4712, 4713}
    for pid, line in processes.items():
        assert_same(line, witness.subject("pid", pid))


@pytest.mark.parametrize("log", ["night", "recorded"])
def test_pandas_reads_both_files_with_no_options(log: str, request: pytest.FixtureRequest) -> None:
    files = log_files(request.getfixturevalue(log))
    cards, processes = pd.read_csv(files.gpus), pd.read_csv(files.processes)
    for table in (cards, processes):
        for column in table.columns:
            if " [" in column or column in {"index", "pid", "processes", "gpumon_log"}:
                assert pd.api.types.is_numeric_dtype(table[column]), column
