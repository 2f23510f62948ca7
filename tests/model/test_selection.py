"""Reading ``--gpus``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.model.selection import ALL, SelectionError, parse_selection


def test_indices_ranges_and_uuid_beginnings_add_up() -> None:
    chosen = parse_selection("0, 2-3,gpu-1A2B")
    assert [index for index in range(6) if chosen.includes(index, "GPU-ffff")] == [0, 2, 3]
    assert chosen.includes(5, "GPU-1a2b3c")
    assert not chosen.includes(5, None)


def test_no_selection_is_every_card() -> None:
    assert ALL.includes(7, None)


def test_what_was_named_and_is_not_there_is_missed_only_where_all_is_known() -> None:
    chosen = parse_selection("0,3,GPU-aa,GPU-BB")
    assert chosen.missing(2, ["GPU-AA1", "GPU-cc"]) == ["3", "GPU-bb"]
    assert chosen.missing(2, ["GPU-AA1"]) == ["3"]
    assert ALL.missing(2, ["GPU-AA1", "GPU-cc"]) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "'x' as a GPU"),
        ("", "'' as a GPU"),
        ("1,,2", "'' as a GPU"),
        ("3-1", "'3-1' runs backwards: write 1-3"),
        ("1-", "'1-' as a GPU"),
        ("-1", "'-1' as a GPU"),
        ("99999999999", "'99999999999' as a GPU"),
        ("0-99999", "'0-99999' as a GPU"),
        ("²", "'²' as a GPU"),
    ],
)
def test_what_cannot_be_read_is_named(text: str, said: str) -> None:
    with pytest.raises(SelectionError, match=said.replace("²", ".")):
        parse_selection(text)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        parse_selection(text)
    except SelectionError as error:
        assert str(error)  # noqa: PT017 - both outcomes are right
