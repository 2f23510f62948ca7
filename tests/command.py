"""Runs gpumon in the process of the test, for what it says before it does anything.

A process of its own takes fifty times as long. Of each command at least one test starts one.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from gpumon.cli import main
from tests import fork_server
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


GPUMON = [sys.executable, "-m", "gpumon"]
"""How tests start gpumon."""


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line that ends by itself, such as one with a mistake in it."""
    # Files, because gpumon asks for their descriptors.
    with TemporaryFile("w+", encoding="utf-8") as out, TemporaryFile("w+", encoding="utf-8") as err:
        with redirect_stdout(out), redirect_stderr(err):
            status = main(arguments)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read())
    return subprocess.CompletedProcess(arguments, status, *texts)


def run_gpumon(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run gpumon as a process of its own, forked from one that has imported it."""
    return fork_server.run([*GPUMON, *arguments], env, cwd, timeout=PATIENCE)


def run_program(
    command: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    *,
    cwd: Path | str | None = None,
    check: bool = False,
    before: Callable[[], object] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program that has nothing to read to its end, as a process of its own.

    ``before`` is called in that process before the program starts.
    """
    return subprocess.run(
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=check,
        preexec_fn=before,
    )


def write_program(path: Path, text: str) -> Path:
    """Put an executable file there in one step: the one before may run meanwhile."""
    new = path.with_suffix(".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(0o755)
    return new.replace(path)


def write_config(folder: Path, text: str) -> dict[str, str]:
    """Write a configuration file in a folder; returns the environment that names the folder."""
    path = folder / "gpumon" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return {"XDG_CONFIG_HOME": str(folder)}
