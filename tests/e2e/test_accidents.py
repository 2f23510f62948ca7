"""The page of accidents of a replay: whose they were, and the way back to their moment."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from tests.build import NOON, process, snapshot
from tests.recording.csv.reading import write_log
from tests.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

GPUMON = [sys.executable, "-m", "gpumon"]
XID = Accident(NOON + 10.5, AccidentKind.ERROR_CODE, "GPU-0", 31, 41233, "python")


def test_x_lists_accidents_and_enter_goes_to_their_moment(tmp_path: Path) -> None:
    python = replace(process(41233, user="chen"), name="python", command=("python", "train.py"))
    samples = [snapshot(NOON + at, processes=(python,) * (at < 11)) for at in range(60)]
    told = [replace(each, accidents=(XID,) * (each.time > XID.time)) for each in samples]
    log = write_log(tmp_path / "run.csv", told)
    command = [*GPUMON, "replay", "--paused", str(log)]
    with Screen(command, dict(os.environ, TZ="UTC"), 100, 30) as screen:
        screen.wait_for(r"41233 chen")
        screen.press("x", r"▸ \d\d:\d\d 0 +XID 31 +41233 python of chen +41233 python.* ≥ 24\.0")
        screen.wait_for(r"command: python train\.py")
        screen.press("\r", r"\A[^\n]*:\d\d:10[^\n]*\n[\s\S]*41233 chen")
