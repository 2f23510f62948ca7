"""A path where nothing exists, whatever the machine has: some have ``/nonexistent``."""

from __future__ import annotations

from pathlib import Path

ABSENT = str(Path(__file__).with_name("nothing-here"))
