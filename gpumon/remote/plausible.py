"""What another machine says of its processes, made as harmless as what ``/proc`` says here.

Names and commands of processes are hostile on every machine, and whoever shows them knows. States,
sentences and times come from gpumon or the kernel here; from another machine they may be anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.host.process_host import Refusal, Refused
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.host.process_host import Details, ProcessStatus, RelatedProcess
    from gpumon.model.processes import ProcessId

_LATEST = 2.0**33
"""A time beyond this, in the year 2242, is none."""
_MOST_CHARACTERS = 300


def plausible_status(status: ProcessStatus) -> ProcessStatus:
    """A status with a state of one letter and printable names."""
    return replace(
        status,
        state=_letter(status.state),
        wait_channel=_text(status.wait_channel),
        parent_name=_text(status.parent_name),
    )


def plausible_family(
    family: Iterable[RelatedProcess], time_offset: float
) -> tuple[RelatedProcess, ...]:
    """These processes, each PID once and none before its parent, in this machine's time."""
    listed = tuple(family)
    pids = {relative.id.pid for relative in listed}
    kept: dict[int, RelatedProcess] = {}
    for relative in listed:
        if relative.id.pid in kept or (relative.parent in pids and relative.parent not in kept):
            continue
        kept[relative.id.pid] = replace(
            relative,
            user=_text(relative.user),
            state=_letter(relative.state),
            started_at=_time(relative.started_at, time_offset),
        )
    return tuple(kept.values())


def plausible_details(details: Details, process: ProcessId, time_offset: float) -> Details:
    """Details of the process that was asked for.

    Args:
        details: The details.
        process: That process.
        time_offset: Seconds to add to their times.

    Raises:
        Refused: They are of another process.
    """
    if details.id != process:
        sentence = f"the details are of {details.id.pid}, and those of {process.pid} were asked for"
        raise Refused(Refusal.UNREACHABLE, sentence)
    return replace(
        details,
        state=None if details.state is None else _letter(details.state),
        wait_channel=_text(details.wait_channel),
        family=plausible_family(details.family, time_offset),
        unreadable=tuple(_cut(printable(sentence)) for sentence in details.unreadable),
    )


def _letter(state: str) -> str:
    return state if len(state) == 1 and state.isascii() and state.isalpha() else "?"


def _text(text: str | None) -> str | None:
    return None if text is None else _cut(printable(text))


def _cut(text: str) -> str:
    return text[:_MOST_CHARACTERS]


def _time(time: float | None, offset: float) -> float | None:
    if time is None or not 0 <= time + offset <= _LATEST:
        return None
    return time + offset
