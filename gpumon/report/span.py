"""The span of ``--from`` and ``--to``, in moments as people write them (``gpumon.moments``)."""

from __future__ import annotations

from datetime import datetime, timedelta

from gpumon.moments import MomentError, on_day, parse_moment, time_of_day


class SpanError(ValueError):
    """A time cannot be read, or a span is empty.

    Attributes:
        sentence: Which and why, for a person.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def parse_span(
    first: str | None, last: str | None, now: float
) -> tuple[float | None, float | None]:
    """The seconds since the epoch that ``--from`` and ``--to`` mean; ``None`` where not given.

    A bare time of day is its last occurrence before now. With a ``first``, that of ``last`` is on
    the day of ``first``, or on the next day unless that is still to come: ``22:00`` to ``03:00`` is
    one night.

    Raises:
        SpanError: One cannot be read, or the end is not after the beginning.
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
