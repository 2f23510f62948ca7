"""The container image: what its file says, and where there is a builder the image itself."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpumon import __version__
from tests.lives import needs

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text(encoding="utf-8")
TAG = "gpumon-test"
_PATIENCE = "240"
"""Seconds for a build, below the time that a test may take."""


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["timeout", _PATIENCE, "docker", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def builder_runs() -> bool:
    """Whether an engine answers, and has or can fetch what the image begins with."""
    if shutil.which("docker") is None:
        return False
    (base,) = set(re.findall(r"^FROM (\S+)", TEXT, re.MULTILINE))
    if docker("version", "--format", "{{.Server.Version}}").returncode != 0:
        return False
    return docker("image", "inspect", base).returncode == 0 or docker("pull", base).returncode == 0


@needs("hadolint")
def test_hadolint_finds_nothing_to_better() -> None:
    done = subprocess.run(
        ["hadolint", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


def test_all_that_is_copied_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    copied = [line.split()[1:-1] for line in TEXT.splitlines() if line.startswith("COPY ")]
    names = {name for line in copied if not line[0].startswith("--") for name in line}
    assert names == sent
    assert all((ROOT / name).exists() for name in names)
    assert any(fnmatch.fnmatch("gpumon/__pycache__", line) for line in ignored)


def test_nobody_of_the_host_has_the_number_of_its_user() -> None:
    (number,) = re.findall(r"useradd .*--uid (\d+)", TEXT)
    # People have 1000 to 60000, services of systemd 61184 to 65519, and nobody 60706 to 61183:
    # https://systemd.io/UIDS-GIDS/
    assert 60706 <= int(number) <= 61183
    assert TEXT.index(f"USER {number}") < TEXT.index("ENTRYPOINT")


def test_the_image_runs() -> None:
    if not builder_runs():
        pytest.skip("no Docker engine with the base image")
    built = docker("build", "--tag", TAG, ".")
    assert built.returncode == 0, built.stderr
    try:
        assert docker("run", "--rm", TAG, "--version").stdout.startswith(f"gpumon {__version__}")
        assert "H100" in docker("run", "--rm", TAG, "snapshot", "--demo").stdout
        # As somebody of the host, whom the image does not know.
        other = docker("run", "--rm", "--user", "4242:4242", TAG, "snapshot", "--demo")
        assert (other.returncode, other.stderr) == (0, "")
        assert docker("run", "--rm", "--entrypoint", "id", TAG, "-un").stdout == "gpumon\n"
    finally:
        docker("rmi", "--force", TAG)
