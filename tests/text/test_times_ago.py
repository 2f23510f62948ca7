"""Times before now, as users write them."""

from __future__ import annotations

import pytest

from gpumon.text.time_parsing import MomentError, parse_moment
from tests.build import NOON


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
