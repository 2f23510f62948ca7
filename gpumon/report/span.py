"""The time range of ``--from`` and ``--to``, parsed by ``gpumon.text.time_parsing``."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpumon.text.time_parsing import MomentError, on_day, parse_moment, time_of_day


class SpanError(ValueError):
    """A time cannot be parsed, or the range is empty.

    Attributes:
        sentence: The reason, for the user.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def parse_span(
    first: str | None, last: str | None, now: float
) -> tuple[float | None, float | None]:
    """``--from`` and ``--to`` in seconds since the epoch; ``None`` if not given.

    A time of day without a date is its last occurrence before now. With a ``first``, ``last`` is on
    the day of ``first``, or on the next day if that is already past: ``22:00`` to ``03:00`` is one
    night.

    Raises:
        SpanError: A time cannot be parsed, or the end is not after the start.
    """
    began = None if first is None else _moment("--from", first, now)
    ended = None if last is None else _moment("--to", last, now)
    if began is None or ended is None or last is None:
        return began, ended
    if (clock := time_of_day(last)) is not None:
        day = datetime.fromtimestamp(began).date()
        ended = on_day(day, clock)
        following = on_day(day + timedelta(days=1), clock)
        if ended <= began and following <= now:
            ended = following
    if ended <= began:
        raise SpanError(f"--to {last} is not after --from {first}: nothing lies between them.")
    return began, ended


def _moment(option: str, text: str, now: float) -> float:
    try:
        return parse_moment(text, now)
    except MomentError as error:
        raise SpanError(f"{option} {error}") from None
