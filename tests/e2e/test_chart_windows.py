"""The time that charts show: the same keys and the same time on every screen."""

from __future__ import annotations

import os

import pytest

from tests.e2e.test_terminal import GPUMON
from tests.screen import Screen


@pytest.mark.slow
def test_one_window_for_all_screens_is_chosen_by_the_same_keys() -> None:
    with Screen([*GPUMON, "--demo"], dict(os.environ), 200, 50) as screen:
        screen.wait_until_live()
        screen.wait_for(r"-5m .* now")
        screen.type("1")
        screen.wait_for(r"-1m .* now")
        screen.wait_for("charts: the last minute")
        screen.type("\t\r")
        screen.wait_for("The last minute")
        screen.type("3")
        screen.wait_for("The last 30 minutes")
        screen.type("\x1b")
        screen.wait_for(r"-30m .* now[\s\S]*GPU-MEM▼")
        screen.type("\t")
        screen.wait_for(r"\n▸.* ann")
        screen.type("\r")
        screen.wait_for("The last 30 minutes")
        screen.type("4")
        screen.wait_for("All that was seen")
        screen.type("\x1b")
        screen.wait_for("GPU-MEM▼")
        screen.type("u")
        screen.wait_for("── ann all that was seen")
