"""The tables of ``docs/config.md``, which follow from the tables of the code.

``python -m tests.config.config_page`` writes them into the page; a test checks that they are what
stands there.
"""

from __future__ import annotations

from pathlib import Path

from gpumon.alerts.alert import KEYS
from gpumon.config.columns import COLUMN, COLUMN_SETS, GPU_COLUMN
from gpumon.config.keymap import ACTIONS, fixed_keys
from gpumon.config.settings import VARIABLES
from gpumon.config.table import SETTINGS
from gpumon.config.toml_text import toml
from tests.pages import with_table

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def with_tables(page: str) -> str:
    """The page with its tables made anew, each between its mark and the next."""
    tables: dict[str, list[tuple[str, ...]]] = {
        "settings": [
            ("key", "default", "values", "what it does"),
            *(
                (f"`{one.name}`", f"`{toml(one.default)}`", one.valid, one.about)
                for one in SETTINGS.values()
            ),
        ],
        "variables": [
            ("variable", "such as", "in place of"),
            *(
                (f"`{name}`", f"`{one.example}`", _codes(one.names, ", "))
                for name, one in VARIABLES.items()
            ),
        ],
        "columns": [
            ("column", "heading", "set", "what it shows"),
            *(
                (
                    f"`{one.key}`",
                    f"`{one.label}`",
                    _codes(
                        tuple(name for name, keys in COLUMN_SETS.items() if one.key in keys), ", "
                    ),
                    one.about,
                )
                for one in COLUMN.values()
            ),
        ],
        "GPU columns": [
            ("column", "heading", "what it shows"),
            *((f"`{one.key}`", f"`{one.label}`", one.about) for one in GPU_COLUMN.values()),
        ],
        "alerts": [
            ("key", "default", "what it settles"),
            *((f"`{key.name}`", key.default, key.about) for key in KEYS.values()),
        ],
        "actions": [
            ("action", "usual keys", 'with `preset = "vim"`', "what it does"),
            *(
                (
                    f"`{one.name}`",
                    _codes(one.keys, " "),
                    _codes(one.vim, " "),
                    next(iter(one.on.values())),
                )
                for one in ACTIONS.values()
            ),
        ],
        "fixed keys": [
            ("key", "what it does"),
            *(
                (f"`{key}`", about)
                for key, one in fixed_keys("app", "dashboard").items()
                for about in one.on.values()
            ),
        ],
    }
    for name, rows in tables.items():
        page = with_table(page, name, _table(rows))
    return page


def _codes(words: tuple[str, ...], between: str) -> str:
    return between.join(f"`{word}`" for word in words)


def _table(rows: list[tuple[str, ...]]) -> str:
    header, *others = rows
    ruled = [header, ("---",) * len(header), *others]
    return "".join(f"| {' | '.join(row)} |\n" for row in ruled)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
