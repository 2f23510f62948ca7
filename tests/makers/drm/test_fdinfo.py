"""What drivers tell of open files, and what is no such text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.makers.drm.clients import ClientHead, parse_head, parse_usage
from tests.makers.intel.captures import XE_CLIENT

XE = XE_CLIENT.encode()

# The lines of drivers/gpu/drm/amd/amdgpu/amdgpu_fdinfo.c of Linux 6.1, which has a space in one.
AMDGPU = b"""pos:\t0
flags:\t02100002
pasid:\t32771
drm-driver:\tamdgpu
drm-pdev:\t0000:0a:00.0
drm-client-id:\t41
drm-memory-vram:\t181300 KiB
drm-memory-gtt: \t26280 KiB
drm-memory-cpu: \t0 KiB
amd-evicted-vram:\t0 KiB
drm-engine-gfx:\t1208457371 ns
drm-engine-enc_1:\t5 ns
"""

# The form of Linux 5.14 to 5.18.
OLD_AMDGPU = b"""pos:\t0
flags:\t02100002
mnt_id:\t24
pdev:\t0000:0a:00.0
pasid:\t32774
vram mem:\t19960 kB
gtt mem:\t2060 kB
cpu mem:\t0 kB
gfx0:\t12.34%
gfx1:\t2.66%
compute0:\t0.50%
enc_10:\t7.00%
"""


def test_memory_and_cycles_of_xe() -> None:
    assert parse_head(XE) == ClientHead("0000:03:00.0", 3)
    usage = parse_usage(XE)
    assert usage.resident == {"system": 0, "gtt": 192 * 1024, "vram0": 23992 * 1024}
    assert usage.cycles == {"rcs": 28257900, "bcs": 0, "vcs": 0, "ccs": 0}
    assert usage.total_cycles == dict.fromkeys(usage.cycles, 7655183225)
    assert usage.capacity == {"vcs": 2, "ccs": 4}


def test_memory_and_engine_time_of_amdgpu() -> None:
    assert parse_head(AMDGPU) == ClientHead("0000:0a:00.0", 41)
    usage = parse_usage(AMDGPU)
    assert usage.memory == {"vram": 181300 * 1024, "gtt": 26280 * 1024, "cpu": 0}
    assert usage.engine_ns == {"gfx": 1208457371, "enc_1": 5}
    assert usage.resident == {}


def test_the_older_form_of_amdgpu() -> None:
    assert parse_head(OLD_AMDGPU) == ClientHead("0000:0a:00.0", 32774)
    usage = parse_usage(OLD_AMDGPU)
    assert usage.memory == {"vram": 19960 * 1024, "gtt": 2060 * 1024, "cpu": 0}
    assert usage.percent == {"gfx": pytest.approx(15.0), "compute": 0.5, "enc_1": 7.0}


@pytest.mark.parametrize(
    ("text", "expected"), [("4096", 4096), ("4 KiB", 4096), ("3 MiB", 3 * 2**20), ("1 GiB", 2**30)]
)
def test_units(text: str, expected: int) -> None:
    assert parse_usage(f"drm-resident-vram0:\t{text}\n".encode()).resident == {"vram0": expected}


@pytest.mark.parametrize(
    "line",
    [
        "drm-resident-vram0:\t-5",
        "drm-resident-vram0:\t5 kB of memory",
        "drm-resident-vram0:\t0x10",
        "drm-resident-vram0:\t99999999999999999999999999",
        "drm-resident-vram0:\t99999999999999999999 GiB",
        "drm-resident-:\t5",
        "drm-resident-" + "v" * 100 + ":\t5",
        "drm-resident-vram0",
        " drm-resident-vram0:\t5",
    ],
)
def test_wrong_lines_are_ignored(line: str) -> None:
    text = f"{line}\ndrm-resident-gtt:\t1 KiB\n"
    assert parse_usage(text.encode()).resident == {"gtt": 1024}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"pos:\t0\nflags:\t02\nmnt_id:\t10\nino:\t1\n",
        b"drm-driver:\tv3d\n",
        b"drm-pdev:\t0000:03:00.0\n",
        b"\xff\xfe\0" * 1000,
    ],
)
def test_other_files_have_no_client(text: bytes) -> None:
    assert parse_head(text) is None


def test_a_client_without_a_number_has_none() -> None:
    text = b"drm-driver:\txe\ndrm-pdev:\t0000:03:00.0\ndrm-client-id:\tten\n"
    assert parse_head(text) == ClientHead("0000:03:00.0", None)


def test_the_number_of_engines_is_bounded() -> None:
    text = "".join(f"drm-engine-e{number}:\t1 ns\n" for number in range(1000))
    assert len(parse_usage(text.encode()).engine_ns) <= 32


@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda text: f"drm-{text}".encode()))
def test_no_text_is_taken_for_more_than_it_says(text: bytes) -> None:
    parse_head(text)
    usage = parse_usage(XE + text + b"\n")
    assert all(0 <= size <= 2**50 for size in (*usage.resident.values(), *usage.memory.values()))
    assert all(0 <= percent <= 100 for percent in usage.percent.values())


@pytest.mark.parametrize(("kib", "known"), [(2**40, True), (2**40 + 1, False)])
def test_more_memory_than_a_gpu_can_address_is_a_wrong_number_in_the_older_form_too(
    kib: int, *, known: bool
) -> None:
    text = re.sub(rb"vram mem:.*", b"vram mem:\t%d kB" % kib, OLD_AMDGPU)
    assert parse_usage(text).memory.get("vram") == (kib * 1024 if known else None)
