"""Makes every picture anew, as SVG and PNG: ``python -m screenshots [FOLDER]``.

The same pictures come out each time: the demo is a pure function of its clock, and that stands
still. Without a folder they replace those beside this file.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from screenshots.png import RendererMissingError, png_of
from screenshots.scenes import SCENES, machine, svg_of_fleet, svg_of_scene

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABOUT = "Makes every picture of the program anew, as SVG and PNG."


def main() -> int:
    """Write the pictures; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m screenshots", description=_ABOUT)
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where they go (default: in place of those that are there)",
    )
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as empty:
        # Whatever terminal, place and person this is started by.
        os.environ |= {"TZ": "UTC", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ |= {"XDG_CONFIG_HOME": empty, "XDG_STATE_HOME": empty}
        os.environ.pop("NO_COLOR", None)
        time.tzset()
        return _make(folder)


def _make(folder: Path) -> int:
    missing: RendererMissingError | None = None
    for name, svg in _pictures():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        try:
            (folder / f"{name}.png").write_bytes(png_of(svg))
        except RendererMissingError as error:
            missing = error
    if missing is not None:
        sys.stderr.write(f"python -m screenshots: only SVG files were written: {missing}.\n")
        return 1
    return 0


def _pictures() -> Iterator[tuple[str, str]]:
    """The name and the SVG of each scene."""
    of_one = [scene for scene in SCENES if not scene.hosts]
    for cards, scenes in groupby(of_one, lambda scene: scene.cards):
        with machine(cards) as session:
            for scene in scenes:
                yield scene.name, asyncio.run(svg_of_scene(scene, session))
    for scene in SCENES:
        if scene.hosts:
            yield scene.name, asyncio.run(svg_of_fleet(scene))


if __name__ == "__main__":
    sys.exit(main())
