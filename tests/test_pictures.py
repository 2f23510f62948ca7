"""The pictures in ``screenshots/``: that they show the program as it is, and how they are drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from gpumon.text.charset import SUBSTITUTES
from gpumon.text.formatting import cell_width
from screenshots.__main__ import CHECKSUMS, checksum, checksums
from screenshots.cells import Cell, cells_of
from screenshots.drawing import svg_of
from screenshots.png import RendererMissingError, png_of
from screenshots.scenes import SCENES

ROOT = Path(__file__).parent.parent
PICTURES = {f"{scene.name}.{form}" for scene in SCENES for form in ("svg", "png")}
KEPT = ROOT / "screenshots"
DRAWN = "one-card-80x24"
"""The picture of which the PNG is drawn anew: the smallest."""
MOST_BYTES = 300_000


def test_the_pictures_show_the_program_as_it_is(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "screenshots", str(tmp_path), "--png", DRAWN],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    stale = [
        path.name
        for path in sorted([*tmp_path.glob("*.svg"), *tmp_path.glob("*.png")])
        if not (KEPT / path.name).exists() or path.read_bytes() != (KEPT / path.name).read_bytes()
    ]
    assert not stale, "look at them, then take them anew: python -m screenshots"
    svgs = {f"{scene.name}.svg" for scene in SCENES}
    assert {path.name for path in tmp_path.iterdir()} == {*svgs, f"{DRAWN}.png", CHECKSUMS}
    sums = checksums(KEPT)
    assert checksums(tmp_path) == {DRAWN: sums[DRAWN]}
    # The others were drawn from these SVG files.
    assert sums == {
        name: checksum((KEPT / f"{name}.svg").read_bytes(), (KEPT / f"{name}.png").read_bytes())
        for name in (scene.name for scene in SCENES)
    }


def test_no_picture_is_left_over_and_none_is_heavy() -> None:
    kept = [*KEPT.glob("*.svg"), *KEPT.glob("*.png")]
    assert {path.name for path in kept} == PICTURES
    assert [path.name for path in kept if path.stat().st_size > MOST_BYTES] == []


async def test_a_picture_holds_what_the_screen_shows() -> None:
    class Shown(App[int]):
        def compose(self) -> ComposeResult:
            yield Static(
                Content.assemble(
                    ("ab", "bold #ff0000 on #0000ff"), " 界c█", ("d", "underline #00ff00")
                )
            )

    app = Shown()
    async with app.run_test(size=(10, 2)):
        line, _ = cells_of(app)
    assert [cell.character for cell in line] == [*"ab 界", "", *"c█d  "]
    assert line[0] == Cell("a", "#ff0000", "#0000ff", bold=True)
    assert (line[7].colour, line[7].underlined, line[7].bold) == ("#00ff00", True, False)


def test_blocks_side_by_side_are_one_shape_without_seams() -> None:
    svg = svg_of([[Cell(character, "#aabbcc") for character in "███▌x"]], "#000000", "bar")
    assert '<path fill="#aabbcc" d="M0 0h35v20h-35z"/>' in svg
    assert ">x</text>" in svg


def test_every_sign_of_the_screen_is_in_the_font_or_drawn() -> None:
    def drawn(character: str) -> bytes:
        return png_of(svg_of([[Cell(character, "#ffffff")]], "#000000", "one sign"))

    # A private character, which stands for all that the font lacks.
    lacking = drawn("\ue9ff")
    assert drawn("a") != lacking
    narrow = [sign for sign in SUBSTITUTES if cell_width(sign) == 1]
    assert [sign for sign in narrow if drawn(sign) == lacking] == []


def test_a_letter_stands_in_its_cell_whatever_the_font() -> None:
    svg = svg_of([[Cell(character, "#aabbcc") for character in "a-> <"]], "#000000", "a & b")
    assert 'x="0 10 20 40">a-&gt;&lt;</text>' in svg
    assert "<title>a &amp; b</title>" in svg


def test_without_the_renderer_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RendererMissingError, match=r"pip install -e '\.\[dev\]'"):
        png_of("<svg/>")
