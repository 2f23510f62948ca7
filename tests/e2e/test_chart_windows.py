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
        screen.press("1", r"-1m .* now")
        screen.wait_for("charts: the last minute")
        screen.press("\t\r", "The last minute")
        screen.press("3", "The last 30 minutes")
        screen.press("\x1b", r"-30m .* now[\s\S]*GPU-MEM▼")
        screen.press("\t", r"\n▸.* ann")
        screen.press("\r", "The last 30 minutes")
        screen.press("4", "All that was seen")
        screen.press("\x1b", "GPU-MEM▼")
        screen.press("u", "── ann all that was seen")
