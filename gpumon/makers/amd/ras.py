"""Reads what amdgpu knows of errors of the memory and of other blocks of a GPU (RAS).

The files are described in ``drivers/gpu/drm/amd/amdgpu/amdgpu_ras.c``. Only GPUs with such a
protection have the folder ``ras``: Vega 20, the Instinct accelerators, some Radeon Pro.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.snapshot import Unknown

if TYPE_CHECKING:
    from gpumon.makers.drm.attributes import Attributes

_COUNT = re.compile(r"^(ue|ce): ([0-9]{1,20})$", re.MULTILINE)
_MASK = re.compile(r"feature mask: 0x([0-9a-f]{1,8})\b")
_PAGE = re.compile(rb"^0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : ([RPF])\s*$", re.MULTILINE)

_MEMORY = 1
"""Bit 0 of the mask is the block ``umc``, the memory controllers."""

_PAGES_BYTES = 1024 * 1024


class ErrorCounts(NamedTuple):
    """Errors since the driver was loaded, of all blocks together; or why they are unknown.

    Attributes:
        corrected: Number of corrected ones.
        uncorrected: Number of uncorrected ones.
    """

    corrected: int | Unknown
    uncorrected: int | Unknown


class BadPages(NamedTuple):
    """Pages of memory that had an uncorrected error; or why they are unknown.

    Attributes:
        number: How many.
        pending: Whether some are still to be reserved.
    """

    number: int | Unknown
    pending: bool | Unknown


def read_error_counts(attributes: Attributes) -> ErrorCounts:
    """The errors of a GPU.

    A block whose counter cannot be read makes the sum unknown.
    """
    names = [name for name in attributes.folders("ras") if name.endswith("_err_count")]
    if not names:
        return ErrorCounts(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
    totals = {"ue": 0, "ce": 0}
    told = False
    for name in names:
        text = attributes.text(f"ras/{name}")
        if text is Unknown.NOT_SUPPORTED:
            continue  # the block has no counter: "Query currently inaccessible", EOPNOTSUPP
        if isinstance(text, Unknown):
            return ErrorCounts(text, text)
        for kind, count in _COUNT.findall(text):
            told = True
            totals[kind] += int(count)
    if not told:
        return ErrorCounts(Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)
    return ErrorCounts(totals["ce"], totals["ue"])


def read_ecc_mode(attributes: Attributes) -> bool | Unknown:
    """Whether errors of the memory are detected and corrected."""
    text = attributes.text("ras/features")
    if isinstance(text, Unknown):
        return text
    match = _MASK.search(text)
    return Unknown.NOT_SUPPORTED if match is None else bool(int(match[1], 16) & _MEMORY)


def read_bad_pages(attributes: Attributes) -> BadPages:
    """The pages that the driver has retired, or will.

    Lines are ``0x00000001 : 0x00001000 : R``; R is a reserved page, P one that will be reserved, F
    one that could not be.
    """
    data = attributes.raw("ras/gpu_vram_bad_pages", _PAGES_BYTES)
    if isinstance(data, Unknown):
        return BadPages(data, data)
    states = _PAGE.findall(data)
    return BadPages(len(states), b"P" in states)
