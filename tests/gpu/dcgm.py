"""Asks ``dcgmi dmon``, where DCGM is installed, for what GPM measures."""

from __future__ import annotations

import shutil
import subprocess

FIELDS: dict[int, str] = {
    1002: "sm_active",
    1003: "sm_occupancy",
    1004: "tensor_active",
    1005: "dram_active",
    1006: "fp64_active",
    1007: "fp32_active",
    1008: "fp16_active",
}
"""DCGM's field (``DCGM_FI_PROF_…`` in ``dcgm_fields.h``), a ratio -> the metric, in percent."""


class DcgmError(Exception):
    """DCGM gave no values, for the reason in the text."""


def is_there() -> bool:
    return shutil.which("dcgmi") is not None


def shares(seconds: float) -> dict[str, float]:
    """The values of the first GPU: field of the metric -> percent; without what it lacks.

    Raises:
        DcgmError: It fails, or does not end within so many seconds.
    """
    numbers = ",".join(map(str, FIELDS))
    try:
        done = subprocess.run(
            # The first row has no values yet: they are of the time between two.
            ["dcgmi", "dmon", "-i", "0", "-e", numbers, "-d", "500", "-c", "3"],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DcgmError(f"dcgmi did not end within {seconds:g} s") from None
    except OSError as error:
        raise DcgmError(f"dcgmi cannot be run: {error.strerror}") from None
    if done.returncode:
        words = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise DcgmError(f"dcgmi ended with status {done.returncode}: {words[0]}")
    rows = [line.split()[2:] for line in done.stdout.splitlines() if line.startswith("GPU 0")]
    if not rows or len(rows[-1]) != len(FIELDS):
        raise DcgmError("dcgmi dmon has no row of the first GPU")
    cells = zip(FIELDS.values(), rows[-1], strict=True)
    return {field: 100 * float(cell) for field, cell in cells if cell != "N/A"}
