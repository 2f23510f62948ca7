"""Makes all pictures, as SVG and PNG: ``python -m screenshots [FOLDER]``.

The pictures are the same each time: the demo is a pure function of its clock, which the scenes and
the story set. Without a folder the pictures replace those beside this file. The file ``CHECKSUMS``
there records which PNG was drawn from which SVG. So a test need not draw all PNG files, which takes
most of the time. The animated picture is SVG only.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import sys
import time
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from screenshots.png import RendererMissingError, png_of
from screenshots.scenes import SCENES, machine, svg_of_fleet, svg_of_scene
from screenshots.story import NAME as STORY
from screenshots.story import svg_of_story

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKSUMS = "checksums.txt"
_ABOUT = "Make all pictures of the program, as SVG and PNG."


def main() -> int:
    """Write the pictures; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m screenshots", description=_ABOUT)
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=Path(__file__).parent,
        metavar="FOLDER",
        help="where to write them (default: replace the existing ones)",
    )
    parser.add_argument(
        "--png",
        action="append",
        metavar="NAME",
        help="a picture to draw as PNG too; repeatable (default: all)",
    )
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as empty:
        # The terminal, time zone and settings of the user have no influence.
        os.environ |= {"TZ": "UTC", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        os.environ |= {"XDG_CONFIG_HOME": empty, "XDG_STATE_HOME": empty}
        os.environ.pop("NO_COLOR", None)
        time.tzset()
        story = asyncio.run(svg_of_story())
        (folder / f"{STORY}.svg").write_text(story, encoding="utf-8")
        return _make(folder, options.png)


def _make(folder: Path, drawn: list[str] | None) -> int:
    """Write the pictures of the scenes; returns the exit status."""
    missing: RendererMissingError | None = None
    sums = checksums(folder)
    for name, svg in _pictures():
        (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
        if drawn is not None and name not in drawn:
            continue
        try:
            png = png_of(svg)
        except RendererMissingError as error:
            missing = error
            continue
        (folder / f"{name}.png").write_bytes(png)
        sums[name] = checksum(svg.encode(), png)
    names = {scene.name for scene in SCENES} & sums.keys()
    lines = [f"{sums[name]}  {name}\n" for name in sorted(names)]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")
    if missing is not None:
        sys.stderr.write(f"python -m screenshots: only SVG files were written: {missing}.\n")
        return 1
    return 0


def checksum(svg: bytes, png: bytes) -> str:
    """The checksum of a picture in both formats."""
    return hashlib.sha256(svg + png).hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    """The checksums of the pictures in a folder, by name."""
    path = folder / CHECKSUMS
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: sum_ for sum_, name in (line.split() for line in lines)}


def _pictures() -> Iterator[tuple[str, str]]:
    """The name and the SVG of each scene."""
    of_one = [scene for scene in SCENES if not scene.hosts]
    for gpus, scenes in groupby(of_one, lambda scene: scene.gpus):
        with machine(gpus) as session:
            for scene in scenes:
                yield scene.name, asyncio.run(svg_of_scene(scene, session))
    for scene in SCENES:
        if scene.hosts:
            yield scene.name, asyncio.run(svg_of_fleet(scene))


if __name__ == "__main__":
    sys.exit(main())
