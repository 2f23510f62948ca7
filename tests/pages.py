"""Replaces the generated tables of the documents."""

from __future__ import annotations


def with_table(page: str, name: str, table: str) -> str:
    """The page with a new table between ``<!-- name -->`` and the next ``<!-- end -->``."""
    before, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition("<!-- end -->")
    return before + begin + table + end + after
