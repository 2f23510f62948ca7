"""Takes the picture of ``docs/browser.md``: ``python -m tests.web.picture [FILE [WIDTH HEIGHT]]``.

No test compares it: every version of a browser draws letters a little differently.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.web.serving import serving
from tests.web.test_browser import Tab, chromium

_PLACE = Path(__file__).parents[2] / "docs" / "browser.png"
_SAMPLES_SECONDS = 3.0
"""Seconds after which the graphs have samples of their own."""


async def take(place: Path, width: int, height: int) -> None:
    """Take a picture of the simulated machine in a window of this size, in pixels."""
    with tempfile.TemporaryDirectory() as empty:
        env = {**os.environ, "XDG_STATE_HOME": empty, "XDG_CONFIG_HOME": empty, "TZ": "UTC"}
        with serving("--demo", env=env) as served:
            async with chromium() as browser:
                page = await browser.new_page(viewport={"width": width, "height": height})
                tab = Tab(page)
                await tab.open(served)
                await tab.wait_for(r"LOST since[\s\S]*q quit")
                await asyncio.sleep(_SAMPLES_SECONDS)
                await page.screenshot(path=place)


if __name__ == "__main__":
    asyncio.run(
        take(
            Path(sys.argv[1]) if len(sys.argv) > 1 else _PLACE,
            int(sys.argv[2]) if len(sys.argv) > 3 else 1200,
            int(sys.argv[3]) if len(sys.argv) > 3 else 640,
        )
    )
