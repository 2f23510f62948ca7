"""The page of the topology in a real terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.demo import COARSE_DEMO
from tests.driver import Driver, h100
from tests.e2e.test_alerts import screen_with_driver
from tests.screen import Screen

DOWN, ESCAPE = "\x1b[B", "\x1b"
ROW = r"GPU 0 +X +NV18 [\s\S]*NV# +NVLink"


@pytest.mark.slow
def test_the_key_opens_the_matrix_and_the_past_has_none() -> None:
    with Driver([h100(), h100()]) as driver, screen_with_driver(driver) as screen:
        screen.wait_for(r"GPU[\s\S]*q quit")
        screen.press("i", ROW)
        # A GPU that is added is on the page soon.
        driver.add_card(h100())
        screen.wait_for(r"GPU 2 +NV18 +NV18 +X")
        screen.press_away(ESCAPE, "NVLink")
        screen.press("[", "REWIND")
        screen.press("i", r"The topology is not recorded\. Go back to now to see it\.")


@pytest.mark.slow
def test_a_driver_that_hangs_shows_the_bus_and_does_not_hold_the_page() -> None:
    with Driver([h100(), h100()]) as driver, screen_with_driver(driver) as screen:
        screen.wait_for(r"GPU[\s\S]*q quit")
        driver.cards[0].hang("nvmlDeviceGetP2PStatus")
        screen.press("i", "reading …")
        screen.wait_for(r"GPU 0 +X +– ")
        screen.press(ESCAPE, "q quit")
        driver.cards[0].release()
        screen.quit()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(200, 50), (80, 24)])
def test_the_demo_fits(size: tuple[int, int]) -> None:
    with Screen([*COARSE_DEMO], dict(os.environ), *size) as screen:
        screen.wait_for("q quit")
        screen.press("i", r"GPU 7 [\s\S]*mlx5_1[\s\S]*NUMA 1[\s\S]*SYS +between")


def test_only_the_host_itself_shows_its_topology(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    with Screen([*COARSE_DEMO, "--hosts", "ada-01,ada-02"], env, 100, 24) as screen:
        screen.wait_for(r"HOST[\s\S]*ada-02")
        screen.press(DOWN, "▸")
        screen.press("\r", r"COMMAND[\s\S]*q ")
        screen.press("i", "ssh ada-0[12] gpumon topo")
