"""Glyphs and styles of events on the timeline and in charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.recording.recording import EventKind

if TYPE_CHECKING:
    from gpumon.text.cells import Field

EVENT_GLYPHS = {
    EventKind.CAME: "+",
    EventKind.WENT: "-",
    EventKind.FULL: "■",
    EventKind.THROTTLED: "▼",
    EventKind.ERROR: "✖",
}
"""By increasing severity."""

CAME_AND_WENT = "±"
"""The glyph of a cell in which processes came and others went."""

EVENT_BITS = {kind: 1 << place for place, kind in enumerate(EVENT_GLYPHS)}
PROCESS_BITS = EVENT_BITS[EventKind.CAME] | EVENT_BITS[EventKind.WENT]

_KINDS = tuple(EVENT_GLYPHS)
_STYLES = {
    EventKind.FULL: "state.note",
    EventKind.THROTTLED: "state.warning",
    EventKind.ERROR: "state.critical",
}


def event_field(bits: int, process_style: str, prefix: str = "") -> Field:
    """The glyph and style of a cell with events.

    Args:
        bits: The kinds of its events; the most severe is shown.
        process_style: The style of processes that came or went.
        prefix: Prefix of the style of all other events.
    """
    if bits == PROCESS_BITS:
        return CAME_AND_WENT, process_style
    kind = _KINDS[bits.bit_length() - 1]
    style = _STYLES.get(kind)
    return EVENT_GLYPHS[kind], process_style if style is None else f"{prefix}{style}"
