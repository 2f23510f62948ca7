"""A replay in a real terminal whose disk does not answer."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from tests.build import NOON
from tests.recording.csv.reading import busy, write_log
from tests.screen import PATIENCE, Screen

HANGING = """
import os, sys, threading
from gpumon.cli import main
from gpumon.recording.csv.file_lines import FileLines

read = FileLines.read

def hang(self, start, stop):
    if os.path.exists(sys.argv[1]):
        threading.Event().wait()
    return read(self, start, stop)

FileLines.read = hang
sys.exit(main(sys.argv[2:]))
"""
SILENCE = re.compile(r"the log is not read: no answer for (\d+) s")


@pytest.mark.slow
def test_while_the_disk_hangs_the_screen_lives_says_so_and_ends_at_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "run.csv", [busy(second) for second in range(60)], began=NOON)
    flag = tmp_path / "hangs"
    command = [sys.executable, "-c", HANGING, str(flag), "replay", str(log), "--paused"]
    with Screen(command, dict(os.environ), 160, 40) as screen:
        screen.wait_for("12:00:00|GPU")
        flag.touch()
        # There is something new to read.
        with log.open("ab") as file:
            file.write(log.read_bytes().splitlines(keepends=True)[-1])

        first = int(SILENCE.findall(screen.wait_for(SILENCE.pattern))[0])
        # It is drawn on.
        screen.wait(
            lambda it: any(int(found) > first + 1 for found in SILENCE.findall(it.text())),
            "waiting for the seconds to pass",
        )
        screen.type("{n")
        screen.press("?", "Ctrl\\+C")
        screen.wait_gone(SILENCE.pattern)
        screen.press("\x1b", SILENCE.pattern)
        began = time.monotonic()
        screen.type("q")

        assert screen.wait_end() == 0
        assert time.monotonic() - began < PATIENCE / 4
