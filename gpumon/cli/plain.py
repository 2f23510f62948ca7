"""Reads ``gpumon`` and ``gpumon -n 0.5`` without argparse.

Most people type one of these, and argparse takes a tenth of the time until the first picture.
``tests/cli/test_command_line.py`` checks that argparse reads them in the same way.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

LOG_INTERVAL = 1.0
OPTIONAL = (
    *("theme", "gpus", "user", "filter", "demo", "backend"),
    *("hosts", "ssh", "prometheus", "match", "timeout", "ascii", "visitor", "readonly"),
)
"""What every command's options have, ``None`` if it is not given."""


def read_plainly(arguments: Sequence[str]) -> argparse.Namespace | None:
    """Parse these arguments; ``None`` if argparse must parse or refuse them."""
    interval = None
    if arguments:
        if len(arguments) != 2 or arguments[0] not in {"-n", "--interval"}:
            return None
        interval = seconds(arguments[1])
        if interval is None:
            return None
    told = SimpleNamespace(command=None, interval=interval, log=None, commands=True, columns=None)
    vars(told).update(dict.fromkeys(OPTIONAL))
    return cast("argparse.Namespace", told)


def seconds(text: str) -> float | None:
    """Seconds between samples, as in ``watch -n``; ``None`` if the text is not valid."""
    digits = text.replace(".", "", 1)
    if not (digits.isascii() and digits.isdecimal()):
        return None
    value = float(text)
    return value if MIN_INTERVAL <= value <= MAX_INTERVAL else None
