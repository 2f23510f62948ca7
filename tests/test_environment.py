"""The environment that the tests give to the programs they start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.absent import ABSENT

ROOT = Path(__file__).parents[1]


def test_programs_of_the_tests_get_the_environment_of_an_ordinary_user() -> None:
    of_a_developer = {
        **dict.fromkeys(("PYTHONUNBUFFERED", "PYTHONUTF8", "NO_COLOR", "GPUMON_ASCII"), "1"),
        "LC_ALL": "C",
        "TERM": "dumb",
        "TMUX": "/tmp/t,1,0",
        "CUDA_VISIBLE_DEVICES": "",
    }
    program = (
        "import tests.conftest, os; print(*(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"HOME": "/home/ann", "PATH": os.environ["PATH"], **of_a_developer},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(done.stdout.splitlines()) == {
        "HOME=/home/ann",
        f"PATH={os.environ['PATH']}",
        "LANG=C.UTF-8",
        "TERM=xterm-256color",
        "SHELL=/bin/sh",
        f"XDG_CONFIG_HOME={ABSENT}",
    }
