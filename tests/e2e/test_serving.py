"""A real inference server in a real terminal: what clients send is what stands on the screen."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.driver import GIB, Driver, Owner, h100
from tests.known import known
from tests.screen import Screen
from tests.serving.real_server import SLOTS, busy, real_server

COLUMNS = "pid,running,waiting,tokens,command"
COMMAND = [sys.executable, "-m", "gpumon", "--interval", "0.2", "--columns", COLUMNS]
MOST_SECONDS, LEAST_SECONDS = 40, 4
"""Over how long a rate is, on a busy machine too."""


@pytest.mark.slow
def test_the_screen_shows_what_clients_send(tmp_path: Path) -> None:
    with real_server(tmp_path) as server, Driver([h100(memory_used=20 * GIB)]) as driver:
        driver.cards[0].processes = [Owner(server.process.pid, memory=20 * GIB)]
        row = rf"\n[ ▸]+{server.process.pid} +"
        with Screen(COMMAND, driver.env(), 120, 30) as screen:
            # A rate is there after the second answer.
            screen.wait_for(rf"RUN WAIT +TOK/S +COMMAND{row}0 +0 +0 +\S*llama-server")
            server.complete(1200)
            text = screen.wait_for(rf"{row}0 +0 +[1-9]")
            rate = int(known(re.search(rf"{row}0 +0 +(\d+) ", text))[1])
            assert 1200 / MOST_SECONDS <= rate <= 1200 / LEAST_SECONDS
            with busy(server.address, SLOTS + 3):
                # Whether it generates is not known before a request has ended.
                screen.wait_for(rf"{row}{SLOTS} +3 +–")
                screen.press(
                    "\x1b[B\x1b[B\r",
                    rf"server +llama.cpp[\s\S]*model +\S+tiny.gguf[\s\S]*"
                    rf"requests +{SLOTS} running, 3 waiting",
                )
            screen.wait_for(r"requests +0 running, 0 waiting")
            screen.press("\x1b", rf"{row}0 +0 +")
            screen.quit()


@pytest.mark.slow
def test_a_server_without_metrics_says_which_option_turns_them_on(tmp_path: Path) -> None:
    with real_server(tmp_path, []) as server, Driver([h100(memory_used=20 * GIB)]) as driver:
        driver.cards[0].processes = [Owner(server.process.pid, memory=20 * GIB)]
        with Screen(COMMAND, driver.env(), 120, 30) as screen:
            screen.wait_for(rf"\n +{server.process.pid} +– +– +– +\S*llama-server")
            screen.type("\x1b[B\x1b[B\r")
            screen.wait_for(r"requests +not known: its metrics are off: start it with --metrics")
