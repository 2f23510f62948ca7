"""A change that is not about how something looks leaves every picture as it was."""

from __future__ import annotations

import json

import pytest

from tests.ui.pictures import KINDS, SUMS, sums


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("utc")
def test_every_picture_is_as_it_was(kind: str) -> None:
    known, found = json.loads(SUMS.read_text())[kind], sums(kind)
    differing = [group for group in {**known, **found} if known.get(group) != found.get(group)]
    assert not differing, (
        "look at them: python -m tests.ui.pictures --save FILE in a tree of before, --against FILE"
        " here; if they are to look so: python -m tests.ui.pictures --renew"
    )
