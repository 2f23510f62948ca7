"""What Textual's own widgets write where only ASCII is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from rich.segment import Segment
from textual.color import Color

from gpumon.text.formatting import spell_out
from gpumon.ui.terminal.widget_output import SameWidth

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def _ascii() -> Iterator[None]:
    spell_out({"…": "...", "≥": ">="})
    yield
    spell_out({})


@pytest.mark.usefixtures("_ascii")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a long sente…", "a long sen..."),
        ("cut after a…  ", "cut after...  "),
        ("go on …", "go o..."),
        ("a … b…", "a ~..."),
        ("plain", "plain"),
        ("≥ 3", "> 3"),
    ],
)
def test_what_textual_cuts_ends_in_three_dots_and_keeps_its_width(text: str, shown: str) -> None:
    (segment,) = SameWidth().apply([Segment(text)], Color(0, 0, 0))
    assert segment.text == shown
    assert len(shown) == len(text)


def test_elsewhere_it_stays() -> None:
    (segment,) = SameWidth().apply([Segment("a long sente…")], Color(0, 0, 0))
    assert segment.text == "a long sente…"
