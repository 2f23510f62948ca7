"""Amounts, and times before now, as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.text.time_parsing import MomentError, parse_moment
from gpumon.text.unit_parsing import DURATION, PERCENT, SIZE, TIMESPAN, Measure, QuantityError
from tests.build import NOON


@pytest.mark.parametrize(
    ("measure", "text", "amount"),
    [
        (TIMESPAN, "90", 90),
        (TIMESPAN, "0.5", 0.5),
        (TIMESPAN, "30s", 30),
        (TIMESPAN, "15m", 900),
        (TIMESPAN, "8h", 28_800),
        (TIMESPAN, "1h30m", 5400),
        (TIMESPAN, "2d", 172_800),
        (TIMESPAN, "1.5H", 5400),
        (DURATION, "1d2h3m4s", 93_784),
        (SIZE, "500k", 500 * 1024),
        (SIZE, "100M", 100 * 2**20),
        (SIZE, "1.5G", 1.5 * 2**30),
        (SIZE, "2TiB", 2**41),
        (SIZE, "12b", 12),
        (SIZE, "0", 0),
        (PERCENT, "90%", 90),
        (PERCENT, ".5", 0.5),
    ],
)
def test_what_is_typed_is_meant(measure: Measure, text: str, amount: float) -> None:
    assert measure.read(text)[0] == amount


@pytest.mark.parametrize(
    ("measure", "text"),
    [
        (TIMESPAN, ""),
        (TIMESPAN, "1h30"),
        (TIMESPAN, "-5"),
        (TIMESPAN, "1 h"),
        (TIMESPAN, "1e9"),
        (TIMESPAN, "١s"),
        (TIMESPAN, "5y"),
        (DURATION, "90"),
        (SIZE, "100"),
        (SIZE, "1G5M"),
        (SIZE, "M"),
        (PERCENT, "5G"),
    ],
)
def test_what_could_mean_anything_is_refused_with_advice(measure: Measure, text: str) -> None:
    with pytest.raises(QuantityError, match="such as"):
        measure.read(text)


def test_an_amount_is_known_to_half_of_its_last_digit() -> None:
    assert SIZE.read("10G")[1] == 2**29
    assert DURATION.read("1h30m")[1] == 30
    assert PERCENT.read("1.50")[1] == pytest.approx(0.005)


@given(st.sampled_from([SIZE, DURATION, TIMESPAN, PERCENT]), st.text("0123456789.smhdkMGTiB% "))
def test_no_text_brings_anything_but_an_amount_or_advice(measure: Measure, text: str) -> None:
    try:
        amount, slack = measure.read(text)
    except QuantityError:
        return
    assert amount >= 0
    assert slack >= 0


def test_no_number_of_digits_is_too_many() -> None:
    assert SIZE.read("9" * 400 + "G")[0] == float("inf")
    assert SIZE.read(f"1.{'0' * 400}G") == (2**30, 0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("-8h", 8 * 3600), ("1h", 3600), ("h", 3600), ("m", 60), ("-d", 86400), ("1.5 h", 5400)],
)
def test_a_unit_without_a_number_is_one_of_it(text: str, seconds: float) -> None:
    assert parse_moment(text, NOON) == NOON - seconds


@pytest.mark.parametrize("text", ["", "-", "x", "1", "hh"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(MomentError):
        parse_moment(text, NOON)
