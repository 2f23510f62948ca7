"""A visitor of ``gpumon serve`` only looks on: no key sends, writes, copies or reveals anything.

Of this machine as of others, over a real ssh and from a real Prometheus.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from gpumon.config.keymap import KEYMAP
from gpumon.fleet.fleet import HostStatus
from tests.driver import GIB, Driver, Owner, h100, owners
from tests.exporter.exporting import exporting
from tests.fleet.conftest import environment as of_driver
from tests.fleet.conftest import lab
from tests.fleet.sshd import Lab
from tests.prometheus.server import PrometheusServer, needs_prometheus, open_fleet, wait_for
from tests.screen import PATIENCE
from tests.web.serving import Visit, serving, visiting

pytestmark = pytest.mark.slow

DOWN, ENTER, CTRL_P = "\x1b[B", "\r", "\x10"
ESCAPE = "\x1b[27u"
"""As terminals with the keyboard protocol send it: not the beginning of another key."""
REFUSED = "gpumon is read-only in a browser"
NAMED = {
    "escape": ESCAPE,
    "enter": ENTER,
    "space": " ",
    "tab": "\t",
    "up": "\x1b[A",
    "down": DOWN,
    "left": "\x1b[D",
    "right": "\x1b[C",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "delete": "\x1b[3~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f9": "\x1b[20~",
    "ctrl+p": CTRL_P,
    "ctrl+z": "\x1a",
    "shift+up": "\x1b[1;2A",
    "shift+down": "\x1b[1;2B",
    "shift+left": "\x1b[1;2D",
    "shift+right": "\x1b[1;2C",
}
"""What a terminal sends for the keys with a name."""
ENDING = {"q", "ctrl+c", "ctrl+q"}
"""Keys that leave the dashboard."""


def environment(folder: Path, driver: Driver, config: str = "") -> dict[str, str]:
    """That of somebody all of whose folders are in one."""
    places = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
    for name in places.values():
        (folder / name / "gpumon").mkdir(parents=True)
    (folder / "config/gpumon/config.toml").write_text(config)
    (folder / "cwd").mkdir()
    return {**driver.env(), **{name: str(folder / place) for name, place in places.items()}}


def hold(driver: Driver, *owners: subprocess.Popen[bytes]) -> None:
    """Each has memory of a GPU of its own."""
    for card, owner in zip(driver.cards, owners, strict=False):
        card.processes = [Owner(owner.pid, memory=10 * GIB, sm=20)]
        card.memory_used = 10 * GIB


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def back_to_the_dashboard(visit: Visit) -> None:
    """Close everything that is open, also what opens only now."""
    is_back = False
    while not is_back:
        await visit.type(ESCAPE)
        await asyncio.sleep(0.05)
        is_back = re.search(r"GPU-MEM[\s\S]*\n q quit", visit.text()) is not None


async def open_themes(visit: Visit) -> None:
    """Open the list of themes, again if what an earlier key opens late takes the key."""
    deadline = time.monotonic() + PATIENCE
    while "high-contrast" not in visit.text():
        assert time.monotonic() < deadline, f"no themes on this screen:\n{visit.text()}"
        await back_to_the_dashboard(visit)
        await visit.type("T")
        await asyncio.sleep(1.0)


async def test_no_key_sends_a_signal_or_writes_a_file(tmp_path: Path) -> None:
    config = (
        'host_strip = false\n[[alerts]]\nwhen = "hot"\ndo = [{ command = ["touch", "told"] }]\n'
    )
    with Driver([h100(), h100()]) as driver, owners(2, ["python", "train.py"]) as started:
        hold(driver, *started)
        env = environment(tmp_path, driver, config)
        before = contents(tmp_path)
        with serving(env=env, folder=tmp_path / "cwd") as served:
            # Small: each of a hundred keys draws it several times.
            async with visiting(served, 90, 20) as visit:
                await visit.wait_for(rf" {started[0].pid} [\s\S]*q quit")
                keys = dict.fromkeys(key for one in KEYMAP for key in one.keys)
                for key in [key for key in keys if key not in ENDING]:
                    typed = NAMED.get(key, key)
                    assert len(typed) == 1 or typed.startswith("\x1b"), key
                    # Whatever it opens is confirmed.
                    await visit.type(DOWN + typed + DOWN + ENTER)
                    await back_to_the_dashboard(visit)
                await open_themes(visit)
                await visit.type(DOWN)
                await visit.type(ENTER)
                await back_to_the_dashboard(visit)
                assert not visit.has_ended
            # Another visitor's dashboard: who knows what those keys have sorted, folded and hidden.
            async with visiting(served, 90, 20) as visit:
                await visit.wait_for(rf" {started[1].pid} [\s\S]*q quit")
                await visit.press(NAMED["end"], r"▸[\s\S]*q quit")
                await visit.press(ENTER, r"\n Esc back")
                await visit.press(
                    "".join(NAMED.get(key, key) for key in ("k", "f9", "delete", "y")), REFUSED
                )
                await back_to_the_dashboard(visit)
                unchecked = "the alerts of the configuration are not checked: gpumon watch"
                await visit.press("!", f"In a browser {unchecked}")
                assert not visit.has_ended
                assert [owner.poll() for owner in started] == [None, None]
            await served.wait_children(0)
        assert contents(tmp_path) == before


async def test_what_only_looks_on_is_offered_and_nothing_else(tmp_path: Path) -> None:
    secret = {"API_TOKEN": "hunter2hunter2", "PLAIN": "seen"}
    with Driver([h100()]) as driver, owners(1, ["python", "x.py"], environ=secret) as (owner,):
        hold(driver, owner)
        with serving(env=environment(tmp_path, driver)) as served:
            async with visiting(served, 160, 60) as visit:
                await visit.wait_for(rf" {owner.pid} [\s\S]*q quit")
                await visit.press(DOWN, r"▸[\s\S]*q quit[^\n]*\Z")
                offered = visit.text().splitlines()[-1]
                assert not re.search(r"end…|copy|\blog\b", offered)
                for key in ("k", "y", "L", "a"):
                    await visit.press(key, REFUSED)
                    await visit.type(ESCAPE)
                    await visit.press(DOWN, r"▸[\s\S]*q quit[^\n]*\Z")
                await visit.press(ENTER, r"PLAIN +seen[\s\S]*1 value hidden *$|1 value hidden\s")
                await visit.press("s", REFUSED)
                assert "hunter2" not in visit.text()
                await visit.type(ESCAPE)
                await visit.press("?", "Clear in turn")
                assert "Log every sample" not in visit.text()
                assert "End the process" not in visit.text()
                await back_to_the_dashboard(visit)
                await visit.press(CTRL_P + "log every", "(?i)no match")


async def test_gpus_are_tagged_and_compared_and_tagged_processes_not_ended(tmp_path: Path) -> None:
    with Driver([h100(), h100()]) as driver, owners(1, ["python", "x.py"]) as (owner,):
        hold(driver, owner)
        with serving(env=environment(tmp_path, driver)) as served:
            async with visiting(served, 100, 24) as visit:
                await visit.wait_for(rf" {owner.pid} [\s\S]*q quit")
                await visit.press(DOWN + " ", r"1 tagged")
                await visit.press("k", REFUSED)
                await visit.press("\t" + NAMED["home"] + "  ", "2 GPUs tagged: Enter compares them")
                await visit.press(ENTER, "GPU 0-1 compared")
                await visit.press("y", REFUSED)
                assert owner.poll() is None


async def test_a_simulated_fleet_is_seen_and_a_host_of_it_opened(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    with serving("--demo", "--hosts", "gpu-[01-04]", "--theme", "dusk", env=env) as served:
        async with visiting(served) as visit:
            await visit.wait_for(r"── 4 hosts[\s\S]*\n q quit")
            await visit.press(DOWN + ENTER, r"GPU-MEM▼[\s\S]*\n q quit")
            await visit.press(DOWN + "k", REFUSED)
            await visit.type("h")
            await visit.press(ESCAPE * 2, r"── 4 hosts")
    assert not contents(tmp_path)


__all__ = ["lab"]  # a fixture


async def test_hosts_over_ssh_are_seen_and_nothing_is_ended_there(lab: Lab) -> None:
    with (
        Driver([h100()] * 2) as one,
        Driver([h100()] * 4) as other,
        owners(1, ["python", "train.py"]) as (owner,),
    ):
        other.cards[1].processes = [Owner(owner.pid, memory=2**34, sm=90)]
        lab.host("gpu-01", of_driver(one))
        lab.host("gpu-02", of_driver(other))
        ssh = shlex.join(lab.client.client)
        with serving("--hosts", "gpu-[01-02]", "--ssh", ssh) as served:
            async with visiting(served) as visit:
                await visit.wait_for(r"hosts 2 .* of 6 GPUs[\s\S]*gpu-01 ")
                await visit.press(DOWN * 2 + ENTER, rf"gpumon +gpu-02 [\s\S]*\n +1 +{owner.pid} ")
                await visit.press(DOWN + "k", REFUSED)
                await visit.press(ESCAPE * 2, r"hosts 2 ")
        assert owner.poll() is None


@needs_prometheus
async def test_hosts_of_a_prometheus_are_seen(tmp_path: Path) -> None:
    with exporting("--demo", "-n", "0.5") as exporter:
        prometheus = PrometheusServer(tmp_path, [(f"127.0.0.1:{exporter.port}", {"job": "gpumon"})])
        try:
            fleet = open_fleet(prometheus.url)
            live = HostStatus.LIVE
            wait_for(fleet, lambda now: live in {one.status for one in now.hosts}, "the host")
            fleet.close()
            with serving("--prometheus", prometheus.url) as served:
                async with visiting(served) as visit:
                    await visit.wait_for(r"hosts 1[\s\S]*ada-07 .* LOST")
                    await visit.press(DOWN + ENTER, r"Prometheus has no processes")
        finally:
            prometheus.close()
