"""The themes that come with gpumon can be read, and tell apart what differs."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from gpumon.config.themes import ThemeLibrary, resolve_styles
from gpumon.config.themes.styles import DRAWN, blend, contrast, parse
from tests.config.themes.seeing import SIGHTS, apart

SHIPPED = ThemeLibrary().shipped()
AA, AAA = 4.5, 7.0
"""Contrast of text, WCAG 2.2, success criteria 1.4.3 and 1.4.6."""
CLEARLY = 0.1
"""Apart in OKLab: five times what is just noticeable."""
VISIBLY = 0.07
STATES = tuple(f"state.{name}" for name in ("good", "note", "warning", "critical", "quiet"))


def least_of(theme: str) -> float:
    return AAA if theme == "high-contrast" else AA


def test_there_are_the_themes_promised() -> None:
    needed = {"gpumon", "gpumon-light", "colour-blind", "high-contrast", "mono"}
    assert needed <= set(SHIPPED)
    assert len(SHIPPED) >= len(needed) + 4
    assert SHIPPED[0] == "gpumon"


@pytest.mark.parametrize("theme", SHIPPED)
def test_every_text_can_be_read_on_its_own_ground(theme: str) -> None:
    for name, look in resolve_styles(ThemeLibrary().read(theme).variables).items():
        if not name.startswith(DRAWN):
            assert contrast(look.fore, look.ground) >= least_of(theme), name


@pytest.mark.parametrize("theme", SHIPPED)
def test_what_dialogs_and_pages_are_painted_with_can_be_read(theme: str) -> None:
    file = ThemeLibrary().read(theme)
    shown = resolve_styles(file.variables)
    colours = {name: parse(text) for name, text in file.colours.items()}
    for ground in ("background", "surface", "panel"):
        behind = colours[ground]
        for text in ("foreground", "primary", "warning"):
            assert contrast(colours[text], behind) >= least_of(theme), (text, ground)
        # What dialogs take from the dashboard, as Textual draws it on their ground.
        for style in ("header.dim", "panel.state.warning"):
            assert contrast(shown[style].fore, behind) >= least_of(theme), (style, ground)
        # As tcss has it: $foreground 75%.
        hint = blend(colours["foreground"], behind, 0.25)
        assert contrast(hint, behind) >= least_of(theme), ground


@pytest.mark.parametrize("theme", SHIPPED)
def test_bars_and_curves_stand_out_from_their_ground(theme: str) -> None:
    for name, look in resolve_styles(ThemeLibrary().read(theme).variables).items():
        if name.startswith(("bar.", "graph.", "series.")) and name != "bar.stale":
            # A bar that is hardly filled is paler: what it says stands beside it as a number.
            wanted = 1.7 if name.endswith(".low") else 2.2
            assert contrast(look.fore, look.ground) >= wanted, name


@pytest.mark.parametrize("theme", [name for name in SHIPPED if name != "mono"])
def test_states_memory_and_utilisation_look_different(theme: str) -> None:
    shown = resolve_styles(ThemeLibrary().read(theme).variables)
    for one, other in (*combinations(STATES, 2), ("bar.memory", "bar.util")):
        assert apart(shown[one].fore, shown[other].fore) >= VISIBLY, (one, other)


@pytest.mark.parametrize("theme", [name for name in SHIPPED if name != "mono"])
def test_what_is_free_or_wrong_stands_out_from_the_text_and_no_warning_is_white(theme: str) -> None:
    shown = resolve_styles(ThemeLibrary().read(theme).variables)
    for state in ("state.good", "state.warning", "state.critical"):
        assert apart(shown[state].fore, shown[""].fore) >= VISIBLY, state
    assert apart(shown["state.warning"].fore, parse("#ffffff")) >= 2 * VISIBLY


@pytest.mark.parametrize("theme", SHIPPED)
def test_a_fuller_bar_looks_fuller_and_the_curves_of_a_chart_differ(theme: str) -> None:
    shown = resolve_styles(ThemeLibrary().read(theme).variables)
    for bar in ("bar.memory", "bar.util"):
        ramp = [shown[name].fore for name in (f"{bar}.low", bar, f"{bar}.high")]
        ground = shown[bar].ground
        ratios = [contrast(colour, ground) for colour in ramp]
        assert ratios == sorted(ratios), bar
        assert all(apart(a, b) >= 0.05 for a, b in pairwise(ramp)), bar
    for one, other in combinations(range(1, 7), 2):
        distance = apart(shown[f"series.{one}"].fore, shown[f"series.{other}"].fore)
        assert distance >= 0.05, (one, other)


@pytest.mark.parametrize("sight", SIGHTS)
def test_the_colour_blind_tell_states_memory_and_utilisation_apart(sight: str) -> None:
    shown = resolve_styles(ThemeLibrary().read("colour-blind").variables)
    for one, other in (*combinations(STATES, 2), ("bar.memory", "bar.util")):
        assert apart(shown[one].fore, shown[other].fore, sight) >= CLEARLY, (one, other)


def test_the_simulated_sights_confuse_what_they_should() -> None:
    red, green = parse("#c05030"), parse("#807820")
    assert apart(red, green) > CLEARLY
    assert apart(red, green, "tritanopia") > CLEARLY
    assert apart(red, green, "protanopia") < VISIBLY
    assert apart(red, green, "deuteranopia") < 0.02
    white, grey = parse("#ffffff"), parse("#808080")
    for sight in SIGHTS:
        assert apart(white, grey, sight) == pytest.approx(apart(white, grey), abs=0.001)


def test_the_contrast_is_that_of_wcag() -> None:
    assert contrast(parse("#000"), parse("#ffffff")) == pytest.approx(21)
    assert contrast(parse("#777777"), parse("#fff")) == pytest.approx(4.48, abs=0.01)
