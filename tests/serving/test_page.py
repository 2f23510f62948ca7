"""The page about servers says what the code knows."""

from __future__ import annotations

from tests.serving.page import PAGE, with_servers


def test_the_page_lists_the_servers_that_are_known() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_servers(page) == page, "run: python -m tests.serving.page"
