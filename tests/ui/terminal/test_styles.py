"""What themes make of style names, for Textual and for plain escapes; its widgets in ASCII."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rich.segment import Segment
from textual.color import Color
from textual.theme import BUILTIN_THEMES, Theme

from gpumon.config.themes import TEXTUAL_THEMES, ThemeLibrary, resolve_styles
from gpumon.config.themes.styles import DRAWN, contrast
from gpumon.text.formatting import spell_out
from gpumon.ui.terminal.styles import COLOURS_16, COLOURS_256, SgrStyles, sgr_styles
from gpumon.ui.terminal.widget_output import SameWidth
from gpumon.ui.theme_controller import to_textual
from gpumon.ui.view.gpu_text import STATE_STYLES

TEXTUALS = [BUILTIN_THEMES[name] for name in TEXTUAL_THEMES]


def load_theme(name: str) -> Theme:
    return to_textual(ThemeLibrary().read(name))


THEMES = [*map(load_theme, ThemeLibrary().shipped()), *TEXTUALS]


def variables_of(theme: Theme) -> dict[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def shown(theme: Theme, system: str | None) -> SgrStyles:
    return sgr_styles(resolve_styles(variables_of(theme)), system)


@pytest.mark.parametrize("theme", TEXTUALS, ids=lambda theme: theme.name)
def test_every_text_of_textuals_themes_can_be_read_on_its_ground(theme: Theme) -> None:
    for name, look in resolve_styles(variables_of(theme)).items():
        wanted = 1.2 if name.startswith(DRAWN) else 4.5
        assert contrast(look.fore, look.ground) >= wanted, name


def test_every_theme_of_textuals_can_be_chosen() -> None:
    shipped = ThemeLibrary().shipped()
    # Those in the terminal's own colours have none that could be compared.
    usable = {name for name in BUILTIN_THEMES if "ansi" not in name}
    assert set(TEXTUAL_THEMES) == usable - set(shipped)


@pytest.mark.parametrize("name", ThemeLibrary().shipped())
def test_textual_gets_the_colours_of_the_theme_file(name: str) -> None:
    file, theme = ThemeLibrary().read(name), load_theme(name)
    assert (theme.name, theme.dark) == (name, file.dark)
    assert theme.primary == file.colours["primary"]
    shown, written = resolve_styles(variables_of(theme)), resolve_styles(file.variables)
    for style, look in written.items():
        # Textual's way there and back rounds by one.
        assert shown[style].fore == pytest.approx(look.fore, abs=1), style
        assert shown[style].ground == pytest.approx(look.ground, abs=1), style


def test_without_colours_glyphs_show_states_and_reversal_shows_the_cursor() -> None:
    plain = shown(load_theme("gpumon"), None)
    assert {plain.by_name[name].fore for name in STATE_STYLES.values()} == {None}
    assert plain.by_name["cursor"].reverse
    assert not plain.by_name[""].reverse


def test_a_terminal_with_few_colours_gets_no_true_colours() -> None:
    change = shown(load_theme("gpumon"), COLOURS_256).change(None, "state.critical")
    assert "38;5;" in change
    assert "38;2;" not in change


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_with_sixteen_colours_the_cursor_and_all_text_are_visible(
    theme: Theme,
) -> None:
    styles = shown(theme, COLOURS_16).by_name
    cursor = styles["cursor"]
    assert cursor.reverse or cursor.ground != styles[""].ground
    assert all(style.fore != style.ground for style in styles.values())


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
