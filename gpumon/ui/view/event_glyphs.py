"""Glyphs and styles of events on the timeline and in charts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.recording.recording import EventKind

if TYPE_CHECKING:
    from gpumon.text.cells import Field


class EventSign(NamedTuple):
    """How a kind of event is shown.

    Attributes:
        glyph: Its glyph.
        style: Its style; that of processes is another one in each place, and empty here.
        about: What has happened.
        short: The same in a legend.
    """

    glyph: str
    style: str
    about: str
    short: str


EVENT_SIGNS = {
    EventKind.CAME: EventSign("+", "", "a process came", "a process came"),
    EventKind.WENT: EventSign("-", "", "a process went", "one went"),
    EventKind.FULL: EventSign("■", "state.note", "a GPU's memory became full", "memory full"),
    EventKind.THROTTLED: EventSign("▼", "state.warning", "a GPU was slowed down", "slowed down"),
    EventKind.ERROR: EventSign(
        "✖", "state.critical", "an error: an XID, a GPU lost or silent", "an error"
    ),
}
"""By increasing severity."""

CAME_AND_WENT = "±"
"""The glyph of a cell in which processes came and others went."""

EVENT_BITS = {kind: 1 << place for place, kind in enumerate(EVENT_SIGNS)}
PROCESS_BITS = EVENT_BITS[EventKind.CAME] | EVENT_BITS[EventKind.WENT]

_BY_BIT = tuple(EVENT_SIGNS.values())


def event_field(bits: int, process_style: str, prefix: str = "") -> Field:
    """The glyph and style of a cell with events.

    Args:
        bits: The kinds of its events; the most severe is shown.
        process_style: The style of processes that came or went.
        prefix: Prefix of the style of all other events.
    """
    if bits == PROCESS_BITS:
        return CAME_AND_WENT, process_style
    sign = _BY_BIT[bits.bit_length() - 1]
    return sign.glyph, f"{prefix}{sign.style}" if sign.style else process_style
