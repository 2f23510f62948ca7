"""``gpumon serve`` in a real browser: what is seen, what keys do, what the network is asked for."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.async_api import Browser, Page, Route, ViewportSize, async_playwright

from tests.driver import GIB, Driver, Owner, h100, owners
from tests.screen import PATIENCE
from tests.web.serving import Served, serving, visiting

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
SMALL: ViewportSize = {"width": 640, "height": 400}
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here"),
    pytest.mark.slow,
]
ON_SCREEN = """() => {
    const buffer = window.shown.buffer.active;
    const rows = [...Array(window.shown.rows).keys()];
    const text = row => buffer.getLine(row).translateToString(true, 0, window.shown.cols);
    return rows.map(text).join("\\n");
}"""
COLOURS = """() => {
    const line = window.shown.buffer.active.getLine(2);
    const cells = [...Array(window.shown.cols).keys()].map(column => line.getCell(column));
    return [...new Set(cells.filter(one => one.isFgRGB()).map(one => one.getFgColor()))];
}"""

CELL = """() => {
    const box = document.querySelector(".xterm-screen").getBoundingClientRect();
    return [box.width / window.shown.cols, box.height / window.shown.rows];
}"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without a window, as this machine has it."""
    async with async_playwright() as playwright:
        # Even without a profile it writes into this folder.
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM,
                args=FLAGS,
                env={**os.environ, "XDG_CONFIG_HOME": folder},
                timeout=PATIENCE * 1000,
            )
            try:
                yield browser
            finally:
                await browser.close()


class Tab:
    """A page of the browser that shows the dashboard.

    Attributes:
        page: The page.
        requests: Every address that it asked for.
        errors: What went wrong in its programs.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.set_default_timeout(PATIENCE * 1000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda websocket: self.requests.append(websocket.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    async def open(self, served: Served) -> None:
        """Open the address that the server printed."""
        await self.page.route("**/textual.js", _expose_terminal)
        await self.page.goto(served.address)

    async def press(self, key: str, shown: str) -> None:
        """Press a key, and wait until what it leads to is shown."""
        await self.page.keyboard.press(key)
        await self.wait_for(shown)

    async def text(self) -> str:
        """What the terminal in the page shows."""
        shown = await self.page.evaluate(f"window.shown ? ({ON_SCREEN})() : ''")
        assert isinstance(shown, str)
        return shown

    async def wait_for(self, pattern: str) -> str:
        """Wait until something is shown; returns all that is."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, shown := await self.text()):
            assert time.monotonic() < deadline, f"no {pattern!r} in this page:\n{shown}"
            await asyncio.sleep(0.1)
        return shown


async def _expose_terminal(route: Route) -> None:
    """Let a test read what the terminal shows, which draws it and has no text in the page."""
    answer = await route.fetch()
    program, count = re.subn(
        r"this\.terminal=(new \w+\.Terminal\()",
        r"this.terminal=window.shown=\1",
        await answer.text(),
    )
    assert count == 1
    await route.fulfill(response=answer, body=program)


async def test_what_a_browser_shows_does_and_leaves(tmp_path: Path) -> None:
    # One browser for all steps: its start, and each page of it, takes seconds of a processor.
    command = ["python", "\x1b]52;c;ZXZpbA==\x07\x1b[2Jevil\x9b31m", "http://evil.example/x"]
    with Driver([h100(), h100()]) as driver, owners(1, command) as (owner,):
        card = driver.cards[0]
        card.processes = [Owner(owner.pid, memory=10 * GIB, sm=20)]
        card.memory_used = 10 * GIB
        env = {**driver.env(), "XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}
        with serving("--theme", "dusk", "--visitors", "2", env=env) as served:
            async with chromium() as browser:
                tab = Tab(await browser.new_page(viewport={"width": 1200, "height": 800}))
                await tab.open(served)
                await tab.wait_for(rf"PID USER[\s\S]* {owner.pid} .*evil[\s\S]*q quit")
                assert len(await tab.page.evaluate(COLOURS)) > 1
                await keys_act(tab)
                await no_key_ends_a_process(tab, owner)
                await the_size_follows_the_window(tab)
                await a_click_in_the_footer_is_its_key(tab)
                await the_end_is_said_and_a_button_opens_it_again(tab)
                await only_the_server_is_asked(tab, served)
                processes = await one_visitor_more_than_may_be_is_told(tab, served, browser)
            # The browser is gone, and no page has said so.
            await served.wait_children(0)
            assert served.are_gone(processes)
    assert not list(tmp_path.rglob("*.jsonl"))


async def keys_act(tab: Tab) -> None:
    """The keyboard is the terminal's, also where a key is a sequence."""
    await tab.press("ArrowDown", "▸")
    await tab.press("?", "Clear in turn")
    await tab.press("Escape", "q quit")


async def no_key_ends_a_process(tab: Tab, owner: subprocess.Popen[bytes]) -> None:
    """The keys that end a process elsewhere only say that nothing is ended here."""
    for key in ("ArrowDown", "k", "F9", "Delete", "Enter"):
        await tab.page.keyboard.press(key)
    await tab.wait_for(rf"process {owner.pid}|Environment")
    await tab.press("k", "gpumon is read-only in a browser")
    assert owner.poll() is None
    await tab.press("Escape", "q quit")


async def the_size_follows_the_window(tab: Tab) -> None:
    """The dashboard is drawn anew in the size of the window."""
    wide = await tab.page.evaluate("window.shown.cols")
    await tab.page.set_viewport_size({"width": 700, "height": 500})
    await tab.page.wait_for_function(f"window.shown.cols < {wide} - 40")
    await until_redrawn(tab, await tab.page.evaluate("window.shown.cols"))


async def a_click_in_the_footer_is_its_key(tab: Tab) -> None:
    """The mouse reaches the terminal: a word in the footer is its key."""
    await tab.wait_for(r"help[^\n]*\Z")
    lines = (await tab.text()).splitlines()
    width, height = await tab.page.evaluate(CELL)
    column = lines[-1].index("help") + 0.5
    await tab.page.mouse.click(column * width, (len(lines) - 0.5) * height)
    await tab.wait_for("Clear in turn")


async def the_end_is_said_and_a_button_opens_it_again(tab: Tab) -> None:
    """A page whose dashboard has ended offers a new one."""
    await tab.page.keyboard.press("Control+c")
    await tab.page.get_by_text("This dashboard has ended").wait_for()
    await tab.page.get_by_role("button").click()
    await tab.wait_for("PID USER[\\s\\S]*q quit")


async def only_the_server_is_asked(tab: Tab, served: Served) -> None:
    """The page loads nothing from elsewhere, whatever stands in a command line."""
    hosts = {urlsplit(url).netloc for url in tab.requests if not url.startswith("data:")}
    assert hosts == {f"localhost:{served.port}"}
    assert any(url.startswith("ws://") for url in tab.requests)
    assert any("RobotoMono" in url for url in tab.requests)
    assert tab.errors == []


async def one_visitor_more_than_may_be_is_told(
    tab: Tab, served: Served, browser: Browser
) -> list[psutil.Process]:
    """A page too many gets a sentence until another is closed; returns the processes at the end."""
    async with visiting(served):
        await served.wait_children(2)
        last = Tab(await browser.new_page(viewport=SMALL))
        await last.page.goto(served.address)
        await last.page.get_by_text("No more visitors: 2 visitors are here").wait_for()
        await tab.page.close()
        await served.wait_children(1)
        await last.open(served)
        await last.wait_for("PID USER")
        return await served.wait_children(2)


async def until_redrawn(tab: Tab, columns: int) -> None:
    """Wait until the dashboard is as wide as the window: its rule ends where that does."""
    deadline = time.monotonic() + PATIENCE
    while not any(
        line.startswith("─") and len(line) == columns for line in (await tab.text()).splitlines()
    ):
        assert time.monotonic() < deadline, await tab.text()
        await asyncio.sleep(0.1)
