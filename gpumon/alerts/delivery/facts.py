"""A notice as programs get it: as JSON, and as variables of an environment.

The schema of the JSON, ``gpumon.notice/1``, is in ``docs/alerts.md``. It follows the rules of
``gpumon.export.as_json``: units are in the keys, ``null`` is unknown, and keys are only added.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from gpumon.alerts.notice import Notice

SCHEMA = "gpumon.notice/1"
"""The value of the key ``schema``."""
_MOST_CHARACTERS = 2000
"""Of a text; the usual ones have less than 200."""

_VARIABLES = {
    "AT": "at_unix_seconds",
    "SINCE": "since_unix_seconds",
    "GPU": "gpu_index",
    **{
        name.upper(): name
        for name in (
            *("alert", "key", "host", "ended", "severity", "title", "sentence"),
            *("gpu_uuid", "pid", "user", "command", "test"),
        )
    },
}
"""The variables without ``GPUMON_``, and the facts that they have."""

Facts = dict[str, "str | float | bool | None"]


def facts_of(notice: Notice) -> Facts:
    """The object of the schema; its texts are safe to print and have a bounded length."""
    facts: Facts = {
        "schema": SCHEMA,
        "id": _id(notice),
        "alert": notice.alert,
        "key": notice.key,
        "host": notice.host,
        "at_unix_seconds": notice.at,
        "since_unix_seconds": notice.since,
        "ended": notice.ended,
        "severity": notice.severity.name.lower(),
        "title": notice.title,
        "sentence": notice.sentence,
        "gpu_index": notice.gpu_index,
        "gpu_uuid": notice.gpu_uuid,
        "pid": notice.pid,
        "user": notice.user,
        "command": notice.command,
        "test": notice.is_test,
    }
    return {
        name: shortened(printable(value), _MOST_CHARACTERS) if isinstance(value, str) else value
        for name, value in facts.items()
    }


def as_environment(notice: Notice) -> dict[str, str | None]:
    """The variables of a notice; ``None`` for those that must not be there."""
    facts = facts_of(notice)
    return {f"GPUMON_{name}": _variable(facts[fact]) for name, fact in _VARIABLES.items()}


def _variable(value: str | float | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(int(value))


def _id(notice: Notice) -> str:
    """The same for all attempts to tell a notice, and no other one's."""
    parts = (notice.host, notice.alert, notice.key, repr(notice.at), str(notice.ended))
    text = "\0".join(parts).encode(errors="backslashreplace")
    return hashlib.sha256(text).hexdigest()[:16]
