"""Whether this machine has a real NVIDIA GPU."""

from __future__ import annotations

from pathlib import Path

HAS_CARD = any(Path("/dev").glob("nvidia[0-9]*"))
"""A container may have been given ``/dev/nvidia3`` alone."""
