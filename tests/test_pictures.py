"""The pictures in ``screenshots/``: they are up to date, and how they are drawn."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.content import Content
from textual.widgets import Static

from gpumon.text.charset import SUBSTITUTES
from screenshots.__main__ import CHECKSUMS, checksum, checksums
from screenshots.animation import Frame, animated
from screenshots.callouts import MissingAnchorError, annotated
from screenshots.cells import Cell, cells_of
from screenshots.drawing import DRAWN_GLYPHS, svg_of
from screenshots.png import RendererMissingError, png_of
from screenshots.scenes import SCENES
from screenshots.story import NAME as STORY

ROOT = Path(__file__).parent.parent
PICTURES = {f"{scene.name}.{form}" for scene in SCENES for form in ("svg", "png")}
PICTURES.add(f"{STORY}.svg")
KEPT = ROOT / "screenshots"
DRAWN = "one-gpu-80x24"
"""The picture that is drawn as PNG again: the smallest."""
MOST_BYTES = 300_000


@pytest.mark.slow
def test_the_pictures_are_up_to_date(tmp_path: Path) -> None:
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
    assert not stale, "make them again, and look at them: python -m screenshots"
    svgs = {f"{name}.svg" for name in (STORY, *(scene.name for scene in SCENES))}
    assert {path.name for path in tmp_path.iterdir()} == {*svgs, f"{DRAWN}.png", CHECKSUMS}
    sums = checksums(KEPT)
    assert checksums(tmp_path) == {DRAWN: sums[DRAWN]}
    # The others were drawn from these SVG files.
    assert sums == {
        name: checksum((KEPT / f"{name}.svg").read_bytes(), (KEPT / f"{name}.png").read_bytes())
        for name in (scene.name for scene in SCENES)
    }


def test_no_picture_is_left_over_or_too_large() -> None:
    kept = [*KEPT.glob("*.svg"), *KEPT.glob("*.png")]
    assert {path.name for path in kept} == PICTURES
    assert [path.name for path in kept if path.stat().st_size > MOST_BYTES] == []


def glyphs_of_font(path: Path) -> set[str]:
    """The characters of a font: the groups of format 12 in its table ``cmap``."""
    font = path.read_bytes()
    (tables,) = struct.unpack_from(">4xH", font)
    entries = (struct.unpack_from(">4s4xLL", font, 12 + 16 * n) for n in range(tables))
    cmap = next(start for name, start, _ in entries if name == b"cmap")
    (count,) = struct.unpack_from(">2xH", font, cmap)
    maps = {cmap + struct.unpack_from(">4xL", font, cmap + 4 + 8 * n)[0] for n in range(count)}
    glyphs: set[str] = set()
    for at in maps:
        if struct.unpack_from(">H", font, at) == (12,):
            (groups,) = struct.unpack_from(">12xL", font, at)
            for first, last, _ in struct.iter_unpack(">3L", font[at + 16 :][: 12 * groups]):
                glyphs |= set(map(chr, range(first, last + 1)))
    return glyphs


def test_every_glyph_is_in_the_font_or_drawn_as_a_shape() -> None:
    fonts = [glyphs_of_font(path) for path in (KEPT / "fonts").glob("*.ttf")]
    shown = fonts[0].intersection(*fonts[1:]) | DRAWN_GLYPHS
    assert {"a", "●", "⣿"} <= shown
    for path in KEPT.glob("*.svg"):
        texts = re.findall(r"<text[^>]*>([^<]*)</text>", path.read_text(encoding="utf-8"))
        assert set(unescape("".join(texts))) - shown == set(), path.name
    # Also those that no picture shows at the moment, except the lens of Textual's command palette
    # and the double lines, which no screen has.
    assert set(SUBSTITUTES) - shown - {"🔎"} == set()


async def test_cells_have_the_characters_and_styles_of_the_screen() -> None:
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


def test_each_letter_has_its_own_position() -> None:
    svg = svg_of([[Cell(character, "#aabbcc") for character in "a-> <"]], "#000000", "a & b")
    assert 'x="0 10 20 40">a-&gt;&lt;</text>' in svg
    assert "<title>a &amp; b</title>" in svg


def test_a_missing_renderer_is_reported_with_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(RendererMissingError, match=r"pip install -e '\.\[dev\]'"):
        png_of("<svg/>")


def screen_of(*texts: str) -> list[list[Cell]]:
    width = max(map(len, texts))
    return [[Cell(character) for character in text.ljust(width)] for text in texts]


DASHBOARD = (
    " gpumon  DEMO  ada-07  1 of 8 free · 4 need attention · ≥ 1.6 kW      08:00:00  0.5s"
    + " " * 16,
    " # GPU  state                                  memory        util",
    " 0 H100 ● busy  ann 48.5G, dara 9.4G       57.9/79.6G ▇▇▇     53%",
    "── 1 process ──",
    "   #   PID USER    T GPU-MEM▼ SM%   IDLE TOK/S CPU%   RSS    AGE WHERE      COMMAND",
    " q quit  ? help",
)


def test_a_callout_stands_where_its_text_is() -> None:
    svg = annotated(screen_of(*DASHBOARD), "#000000", "title")
    # The box around "1 of 8 free", in column 23.
    assert '<rect x="227" y="40" width="116" height="20" rx="4"/>' in svg
    moved = annotated(screen_of(*(f"  {text}" for text in DASHBOARD)), "#000000", "title")
    assert '<rect x="247" y="40" width="116" height="20" rx="4"/>' in moved


@pytest.mark.parametrize("text", ["8 free", "busy", "GPU-MEM▼", "q quit"])
def test_a_callout_without_its_text_on_the_screen_is_an_error(text: str) -> None:
    lines = screen_of(*(line.replace(text, " " * len(text)) for line in DASHBOARD))
    with pytest.raises(MissingAnchorError):
        annotated(lines, "#000000", "title")


def test_an_animation_draws_each_line_once_and_shows_one_frame_at_a_time() -> None:
    frames = [
        Frame(screen_of("same", "first"), "", "start", 3),
        Frame(screen_of("same", "other"), "k", "next", 1),
    ]
    svg = animated(frames, "#000000", "title")
    assert svg.count(">same</text>") == 1
    assert svg.count('<use href="#l0" y="0"/>') == 2
    # Without animation, and for readers who prefer reduced motion, the first frame is visible.
    assert '<g class="f" id="f0">' in svg
    assert '<g class="f" id="f1" visibility="hidden">' in svg
    assert "@media (prefers-reduced-motion:reduce){.f{animation:none!important}}" in svg
    assert ".f{animation:4s step-end infinite}" in svg
    assert "@keyframes k0{0.000%{visibility:visible}75.000%{visibility:hidden}}" in svg
    assert "@keyframes k1{0%{visibility:hidden}75.000%{visibility:visible}}" in svg
