"""Keeps the secrets of a way out of sentences: what a server or a program says may repeat them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable

_MASK = "***"
_SEPARATORS = re.compile(r"[\s/:@?&=+,;#]+")
_SHORTEST = 4
"""Characters; a shorter part of a URL is no secret, and would mask parts of words."""
_MOST_CHARACTERS = 200


def said_safely(text: str, secrets: Iterable[str]) -> str:
    """What a server or a program said, on one line, safe to print, without secrets.

    Args:
        text: What it said.
        secrets: URLs, or parts of them, and values of headers: none of their parts is kept.
    """
    line = " ".join(text.split())
    parts = {
        part
        for secret in secrets
        for quoted in _SEPARATORS.split(secret)
        for part in (quoted, unquote(quoted))
        if len(part) >= _SHORTEST
    }
    for part in sorted(parts, key=len, reverse=True):
        line = re.sub(re.escape(part), _MASK, line, flags=re.IGNORECASE)
    return shortened(printable(line), _MOST_CHARACTERS)
