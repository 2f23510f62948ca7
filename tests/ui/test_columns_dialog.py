"""The dialog for the columns of the process table offers their named sets."""

from __future__ import annotations

import asyncio

import pytest
from textual.app import App

from gpumon.config.columns import COLUMN_SETS
from gpumon.ui.dialogs.choices import ColumnsDialog


def chosen_after(*keys: str, shown: tuple[str, ...]) -> tuple[str, ...] | None:
    """The columns that the dialog returns after these keys and Enter."""

    async def press() -> tuple[str, ...] | None:
        taken: list[tuple[str, ...] | None] = []
        app: App[None] = App()
        async with app.run_test() as pilot:
            await app.push_screen(ColumnsDialog(shown), taken.append)
            await pilot.pause()
            await pilot.press(*keys, "enter")
            await pilot.pause()
        return taken[0]

    return asyncio.run(press())


@pytest.mark.slow
def test_a_key_goes_from_one_named_set_to_the_next() -> None:
    default, nvitop = COLUMN_SETS["default"], COLUMN_SETS["nvitop"]
    own = ("pid", "user", "command")
    assert chosen_after(shown=own) == own
    assert chosen_after("d", shown=own) == default
    assert chosen_after("d", shown=default) == nvitop
    assert chosen_after("d", "d", shown=own) == nvitop
    assert chosen_after("d", shown=nvitop) == default


@pytest.mark.slow
def test_columns_of_the_gpus_are_chosen_below_those_of_the_processes() -> None:
    own = ("pid", "user", "command")
    assert chosen_after("end", "space", shown=own) == (*own, "fan_speed")
    both = (*own, "dram_active", "pstate", "fan_speed")
    up = chosen_after("end", "space", "up", "space", "up", "space", shown=own)
    assert up == both
    # A column stays in its table, and the command the last of its own.
    moved = chosen_after("end", *["up"] * 4, *["shift+up"] * 4, shown=both)
    assert moved == (*own, "fan_speed", "dram_active", "pstate")
