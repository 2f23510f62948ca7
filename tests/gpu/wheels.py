"""Downloads what a visit to a machine without a network needs, into .whl beside this file.

    python -m tests.gpu.wheels

The wheels are for Linux on x86-64 and Python 3.12: what gpumon needs (pyproject.toml), and what the
tests do. PyTorch, JAX and NVIDIA's libraries are the machine's own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.gpu.work import ROOT

FOLDER = Path(__file__).with_name(".whl")
LIMIT = 64 * 2**20
"""Bytes of the wheels and the tree together."""

_OF_THE_TESTS = (
    *("pytest", "pytest-asyncio", "pytest-xdist", "pytest-timeout", "hypothesis"),
    *("pyte", "syrupy", "nvitop"),
)
"""Those of the development packages that tests/gpu needs."""
_GLIBC = (39, 35, 34, 31, 28, 27, 24, 17)


def requirements() -> list[str]:
    """What to download, with the versions of pyproject.toml."""
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]
    development = project["optional-dependencies"]["dev"]
    wanted = [one for one in development if one.startswith(_OF_THE_TESTS)]
    return [*project["dependencies"], *wanted]


def size() -> int:
    """Bytes of the wheels and of the files that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return sum(file.stat().st_size for file in (*files, *FOLDER.glob("*.whl")) if file.exists())


def main() -> int:
    if sys.version_info >= (3, 14):
        # pip decides by this Python what a requirement's marker leaves out.
        sys.exit("needs a Python before 3.14")
    shutil.rmtree(FOLDER, ignore_errors=True)
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in _GLIBC]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "-d", str(FOLDER)),
            *("--only-binary=:all:", "--python-version=3.12", "--implementation=cp"),
            *(*platforms, "--platform=manylinux2014_x86_64", "--platform=manylinux1_x86_64"),
            *requirements(),
        ],
        check=True,
    )
    total = size()
    print(f"{len(list(FOLDER.glob('*.whl')))} wheels; {total / 2**20:.1f} MiB with the tree")
    return int(total > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
