"""The cost of energy and its carbon dioxide: in all formats, and unknown where the energy is."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import pytest

from gpumon.config import load
from gpumon.report.figures import BY
from gpumon.report.price import Price, digits_for
from tests import fork_server
from tests.build import process
from tests.command import GPUMON
from tests.report.logs import printed, report, write_log
from tests.report.test_command import busy

EUR = Price(0.5, "EUR", 400.0)
HOUR = range(0, 3601, 10)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """An hour of a GPU at 360 W, three quarters of which are ann's."""
    shared = (process(1, user="ann", sm=30), process(2, user="bo", sm=10))
    return write_log(tmp_path / "a.csv", busy(HOUR, processes=shared))


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
def test_each_line_has_the_cost_and_the_co2_of_its_energy(log: Path, by: str) -> None:
    told = report(log, by=by, price=EUR)
    for line in (*told["lines"], told["total"]):
        assert line["cost"] == pytest.approx(0.5 * line["energy_kwh"], abs=1e-6)
        assert line["co2_kg"] == pytest.approx(0.4 * line["energy_kwh"], abs=1e-6)
        assert line["currency"] == "EUR"
    assert told["total"]["cost"] == pytest.approx(0.18)
    assert (told["price_per_kwh"], told["co2_grams_per_kwh"]) == (0.5, 400)


def test_the_table_and_csv_have_them(log: Path) -> None:
    shown = printed(log, by="user", price=EUR, width=160)
    heading, ann, bo, _, total = shown.splitlines()[1:6]
    assert "kWh  COST EUR  CO2-kg" in heading
    assert "0.135   0.108" in ann
    assert "0.045   0.036" in bo
    assert "0.180   0.144" in total
    assert "COST is energy times 0.5 EUR/kWh; CO2-kg is energy times 400 g/kWh." in shown
    [row] = csv.DictReader(io.StringIO(printed(log, form="csv", price=EUR)))
    assert (row["cost"], row["currency"], row["co2_kg"]) == ("0.18", "EUR", "0.144")


def test_without_a_price_nothing_is_shown(log: Path) -> None:
    shown = printed(log, width=300)
    assert "COST" not in shown
    assert "CO2" not in shown
    [line] = report(log)["lines"]
    assert (line["cost"], line["currency"], line["co2_kg"]) == (None, None, None)
    only_co2 = printed(log, price=Price(co2_grams=400.0), width=300)
    assert "COST" not in only_co2
    assert "0.144" in only_co2


def test_the_cost_of_unknown_energy_is_unknown_and_of_partly_known_marked(tmp_path: Path) -> None:
    unknown = write_log(tmp_path / "a.csv", busy(HOUR, power_draw=None))
    [line] = report(unknown, price=EUR)["lines"]
    assert (line["energy_kwh"], line["cost"], line["co2_kg"]) == (None, None, None)
    half = [*busy(range(0, 1800, 10)), *busy(range(1800, 3601, 10), power_draw=None)]
    partly = write_log(tmp_path / "b.csv", half)
    [line] = report(partly, price=EUR)["lines"]
    assert line["cost"] == pytest.approx(0.09)
    assert line["energy_known"] == pytest.approx(0.5)
    row = printed(partly, price=EUR, width=160).splitlines()[2]
    assert {"0.180*", "0.0900*", "0.0720*"} <= set(row.split())


@pytest.mark.parametrize(
    ("largest", "digits"), [(None, 2), (0, 2), (12, 2), (1, 2), (0.5, 3), (0.02, 4), (1e-9, 6)]
)
def test_small_costs_have_more_digits(largest: float | None, digits: int) -> None:
    assert digits_for(largest) == digits


def run(*arguments: str, config: str = "", folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "gpumon").mkdir(exist_ok=True)
    (folder / "gpumon/config.toml").write_text(config, encoding="utf-8")
    env = {**os.environ, "XDG_CONFIG_HOME": str(folder)}
    return fork_server.run([*GPUMON, "report", *arguments], env, timeout=60)


@pytest.mark.slow
def test_the_command_line_takes_precedence_over_configuration(log: Path, tmp_path: Path) -> None:
    def totals(*arguments: str) -> tuple[object, ...]:
        ran = run(str(log), "--format", "json", *arguments, config=config, folder=tmp_path)
        assert (ran.returncode, ran.stderr) == (0, "")
        total = json.loads(ran.stdout)["total"]
        return total["cost"], total["currency"], total["co2_kg"]

    config = '[report]\nprice = 0.25\ncurrency = "€"\nco2 = 380\n'
    assert totals() == pytest.approx((0.09, "€", 0.1368))
    assert totals("--price", "0.5", "--co2", "0") == pytest.approx((0.18, "€", None))


@pytest.mark.slow
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "1e9", "100001", "0,30", "0.3€", "", "١"])
@pytest.mark.parametrize("option", ["--price", "--co2"])
def test_a_bad_number_is_one_sentence(log: Path, tmp_path: Path, option: str, value: str) -> None:
    ran = run(str(log), f"{option}={value}", folder=tmp_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert option in ran.stderr
    assert "give a number from 0 to" in ran.stderr


@pytest.mark.parametrize(
    ("setting", "valid"),
    [
        ("price = -0.1", "give a number from 0 to 100000"),
        ("price = nan", "give a number from 0 to 100000"),
        ("price = 1e9", "give a number from 0 to 100000"),
        ('price = "0.30"', "give a number from 0 to 100000"),
        ("co2 = 10001", "give grams from 0 to 10000"),
        ('currency = "\\u001b[31m"', "give a text of at most 8 characters"),
        ('currency = "of Europe"', "give a text of at most 8 characters"),
        ("currency = 5", "give a text of at most 8 characters"),
    ],
)
def test_a_bad_setting_is_one_sentence_and_shows_no_cost(
    setting: str, valid: str, tmp_path: Path
) -> None:
    path = tmp_path / "gpumon/config.toml"
    path.parent.mkdir()
    path.write_text(f"[report]\n{setting}\n", encoding="utf-8")
    loaded = load({"XDG_CONFIG_HOME": str(tmp_path)})
    [error] = loaded.errors
    assert error.sentence.startswith(f"{path}, line 2: report.")
    assert valid in error.sentence
    assert (loaded.settings.report.price, loaded.settings.report.currency) == (0, "")
