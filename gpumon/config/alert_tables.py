"""The tables ``[[alerts]]`` of the file: their keys. ``gpumon.alerts`` reads their values."""

from __future__ import annotations

from msgspec import Struct


class AlertKey(Struct, frozen=True):
    """A key of an alert.

    Attributes:
        name: The key.
        default: Its default, for the page and the template.
        example: A value in TOML syntax.
        about: What it settles, without a full stop.
    """

    name: str
    default: str
    example: str
    about: str


ALERT_KEYS: dict[str, AlertKey] = {
    key.name: key
    for key in (
        AlertKey(
            "when",
            "none: it is needed",
            '"hot"',
            "what it tells: a state such as `hot`, a filter such as `idle>2h mem>10G`, "
            "`xid critical`, or `ends user:me`",
        ),
        AlertKey("name", "the text of `when`", '"hot GPUs"', "its name in what is told"),
        AlertKey("for", "`0`", '"10m"', "for how long it must hold before it is told"),
        AlertKey(
            "cooldown",
            "`6h`; `30m` for `xid`, `ends` and `free`",
            '"6h"',
            "for how long the same is not told again",
        ),
        AlertKey(
            "do",
            "`[]`: only the list of what was told",
            '["bell", { command = ["notify-send", "gpumon"] }]',
            'how it is told: "bell", "desktop", { command = ["prog", "arg"] }, '
            '{ webhook = "https://…" }, { apprise = "…" }',
        ),
        AlertKey("ended", "`false`", "true", "true: tell the end too"),
        AlertKey(
            "commands",
            "`false`",
            "false",
            "true: tell command lines of processes too, which can hold secrets",
        ),
    )
}
"""The keys of an alert, in the order of the page."""
