"""The files for completion that are installed: the first Tab after ``gpumon`` completes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lives import needs
from tests.screen import PATIENCE, Screen

FOLDER = Path(__file__).parents[2] / "packages" / "completions"
PROMPT = "ready>"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment with ``gpumon`` on the PATH."""
    program = tmp_path / "bin" / "gpumon"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gpumon "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "PS1": f"{PROMPT} ",
        "PYTHONPATH": str(FOLDER.parents[1]),
    }


def completed(shell: Sequence[str], setup: str, env: dict[str, str]) -> str:
    """What stands behind the prompt after ``gpumon snap``, Tab."""
    with Screen(shell, env) as screen:
        screen.wait_for(PROMPT)
        screen.send(f"{setup}; echo set''up\r".encode())
        screen.wait_for(rf"(?m)^setup\n{PROMPT}")
        screen.send(b"gpumon snap\t")
        return screen.wait_for(r"gpumon snapshot")


@needs("bash")
def test_bash_completes_at_the_first_tab(env: dict[str, str]) -> None:
    # bash-completion reads the file when gpumon is completed first.
    setup = f"_first() {{ . {FOLDER / 'gpumon.bash'} && return 124; }}; complete -F _first gpumon"
    completed(["bash", "--norc", "--noprofile", "-i"], setup, env)


@pytest.mark.slow
@needs("zsh")
def test_zsh_completes_at_the_first_tab(env: dict[str, str]) -> None:
    setup = f"fpath=({FOLDER} $fpath); autoload -Uz compinit; compinit -u -D"
    completed(["zsh", "-f", "-i"], setup, env)


@needs("fish")
def test_fish_completes(env: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *("fish", "--no-config", "-c"),
            f"set fish_complete_path {FOLDER}; complete -C 'gpumon snap'",
        ],
        # fish creates its folder there.
        env=env | {"XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    assert done.stdout.split("\t")[0] == "snapshot"
