"""On a real card: what gpumon calls free is what CUDA sees."""

from __future__ import annotations

import os
import sys

import pytest

from tests.command import run_program
from tests.gpu.card import HAS_CARD

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_CARD, reason="there is no NVIDIA card here"),
]

GPUMON = [sys.executable, "-m", "gpumon"]

SEEN_BY_CUDA = """
import ctypes, sys, uuid
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code: sys.exit(f"CUDA error {code}")
count, device, name = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
check(cuda.cuInit(0))
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
for ordinal in range(count.value):
    check(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    check(cuda.cuDeviceGetUuid(ctypes.byref(name), device))
    print(f"GPU-{uuid.UUID(bytes=bytes(name))}")
"""


def output(command: list[str], **variables: str) -> str:
    done = run_program(command, {**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_cuda_sees_what_was_chosen_and_nothing_else() -> None:
    chosen = output([*GPUMON, "select", "-n", "1-16", "--free", "1M"])
    look = [sys.executable, "-c", SEEN_BY_CUDA]
    assert output(look, CUDA_VISIBLE_DEVICES=chosen).split() == chosen.split(",")
    variables = dict(
        line.split("=")
        for line in output(
            [*GPUMON, "select", "-n", "1-16", "--free", "1M", "--format", "env"]
        ).splitlines()
    )
    assert output(look, **variables).split() == chosen.split(",")


def test_a_job_sees_the_card_that_was_reserved_for_it() -> None:
    command = [*GPUMON, "run", "--free", "1M", "--", sys.executable, "-c", SEEN_BY_CUDA]
    free = output([*GPUMON, "select", "-n", "1-16", "--free", "1M"]).split(",")
    (seen,) = output(command).split()
    assert seen in free
