"""The screen of three hosts behind real sshds: all of them, and one that dies and returns."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpumon.remote import client
from tests.driver import GIB, Driver, Owner, buried, h100, owners, rtx4090
from tests.fleet.conftest import environment
from tests.fleet.sshd import Lab
from tests.screen import PATIENCE, Screen


@pytest.mark.slow
def test_three_hosts_are_seen_one_dies_and_comes_back_and_a_job_there_is_ended(lab: Lab) -> None:
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(Driver(cards))
            for cards in ([h100()] * 2, [h100()] * 4, [rtx4090()])
        ]
        (owner,) = stack.enter_context(owners(1, ["python", "train.py"]))
        drivers[1].cards[2].memory_used = 40 * GIB
        drivers[1].cards[2].utilization_gpu = 90
        drivers[1].cards[2].processes = [Owner(owner.pid, memory=40 * GIB, sm=90)]
        for number, driver in enumerate(drivers, 1):
            lab.host(f"gpu-0{number}", environment(driver))
        ssh = shlex.join(lab.client.client)
        command = [sys.executable, "-m", "gpumon", "-n", "0.5", "--ssh", ssh]
        screen = stack.enter_context(Screen([*command, "--hosts", "gpu-[01-03]"], dict(os.environ)))
        screen.wait_for(r"hosts 3  free 6 of 7 GPUs[\s\S]*gpu-01 ○○  [\s\S]*gpu-02 ○○.○ +3 ")
        screen.type("\x1b[B\x1b[B\r")
        screen.wait_for(rf"gpumon  gpu-02 [\s\S]*COMMAND *\n +2 +{owner.pid} ")
        lab.hosts["gpu-02"].stop()
        text = screen.wait_for(r"gpu-02[^\n]* no answer for \d+ s")
        assert re.search(rf" {owner.pid} ", text), "the last picture stays"
        lab.hosts["gpu-02"].start()
        screen.wait_gone("no answer for")
        screen.wait_for(rf"gpumon  gpu-02 [\s\S]* {owner.pid} ")
        # For so long after a loss it refuses at once.
        time.sleep(client.RETRY_SECONDS)
        with buried(drivers[1]):
            screen.type("\x1b[By")
            screen.wait_for(rf"gpumon end {owner.pid}:\d+ --hosts gpu-02 ")
            screen.type("k")
            screen.wait_for(
                rf"{owner.pid} [\s\S]*no children[\s\S]*will free about 40\.0 GiB on GPU 2"
            )
            screen.type("\x1b[C\r")
            screen.wait_for(r"✓[^\n]* ended, 40\.0 GiB came back on GPU 2")
        assert owner.wait(PATIENCE) == -signal.SIGTERM
        told = Path(os.environ["XDG_STATE_HOME"], "gpumon/signals.jsonl").read_text()
        assert all(text in told for text in (f'"pid":{owner.pid}', '"machine":"gpu-02"'))
        drivers[1].cards[2].utilization_gpu = 0
        screen.wait_for(r"2 H100 ○ free")
        screen.type("\x1b")
        screen.wait_gone("✓")
        screen.type("\x1b")
        screen.wait_for(r"hosts 3  free 7 of 7 GPUs[\s\S]*\n.gpu-02 ○○○○ ")
        screen.type("q")
        assert screen.wait_end() == 0
