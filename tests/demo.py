"""``gpumon --demo`` with a coarse past, whose start takes half the CPU: for tests of other things.

``python -m tests.demo`` has the same options. A test that changes gpumon first calls ``main``.
"""

from __future__ import annotations

import sys

COARSE_DEMO = [sys.executable, "-m", "tests.demo"]
_COARSER = 24
"""How much longer the steps of the past are: a value holds for up to 24 minutes of it."""


def main(*arguments: str) -> int:
    """Run gpumon with these arguments; returns its exit status."""
    from gpumon.cli import main as gpumon
    from gpumon.makers.demo import source

    source.PAST_STEPS = tuple((before, _COARSER * step) for before, step in source.PAST_STEPS)
    return gpumon(["--demo", *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
