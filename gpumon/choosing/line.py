"""What waits for those who came before: a card that one of them could take is not ours to take.

Whoever asks for several cards is passed over while there are too few, so that small jobs go on; but
only for so long, then what fits is kept for them until it is enough.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gpumon.choosing.judging import Allowance, Circumstances, judge
from gpumon.choosing.ordering import choose
from gpumon.choosing.requirements import Requirements  # noqa: TC001 - msgspec resolves it
from gpumon.host.procfs import stat_of
from gpumon.model import CardStatus
from gpumon.reserving.queue import Ticket, Waiting, tickets
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.choosing.judging import Verdict
    from gpumon.model import Snapshot
    from gpumon.reserving.folder import Folder

TAKES_SECONDS = 10.0
"""Somebody who has not taken a card for so long that was there for them will not be waited for."""
GATHERS_AFTER = 600.0
"""Seconds after which cards are kept for somebody who needs more than there are."""
_MOST_TICKETS = 256
_STAYS = (CardStatus.LOST, CardStatus.RESET_REQUIRED, CardStatus.NO_PERMISSION)
"""Nobody knows when such a card comes back: the others are not kept for that long."""


class _Wants(Struct, frozen=True):
    """What somebody who waits asks for, and what their environment leaves them."""

    requirements: Requirements
    allowed: tuple[str, ...] | None = None


class Line:
    """Those who wait for cards of this machine.

    Args:
        folder: Where they have their places.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._mine: Waiting | None = None
        self._since: dict[tuple[str, str], float] = {}

    def join(self, requirements: Requirements, allowance: Allowance) -> None:
        """Wait in line from now on.

        Raises:
            OSError: There can be no place.
        """
        allowed = None if allowance.uuids is None else tuple(sorted(allowance.uuids))
        self._mine = Waiting(self._folder, msgspec.json.encode(_Wants(requirements, allowed)))

    def leave(self) -> None:
        """Wait no longer."""
        if self._mine is not None:
            self._mine.close()
            self._mine = None

    def owed(self, snapshot: Snapshot, circumstances: Circumstances) -> dict[str, str]:
        """For whom else a card is there, in a sentence, by its UUID."""
        found: dict[str, str] = {}
        seen = set()
        for ticket in self._before_me():
            for verdict in self._theirs(ticket, snapshot, circumstances, found):
                uuid = verdict.candidate.uuid
                since = self._since.setdefault((ticket.name, uuid), time.monotonic())
                seen.add((ticket.name, uuid))
                if time.monotonic() < since + _patience(ticket):
                    found[uuid] = (
                        f"{ticket.user} has waited for it for "
                        f"{duration(time.time() - ticket.at)}, gpumon run {ticket.pid}"
                    )
        self._since = {key: since for key, since in self._since.items() if key in seen}
        return found

    def _before_me(self) -> Sequence[Ticket]:
        names = tickets(self._folder)[:_MOST_TICKETS]
        if self._mine is None:
            return names
        mine = [place for place, one in enumerate(names) if one.name == self._mine.name]
        return names[: mine[0]] if mine else names

    def _theirs(
        self,
        ticket: Ticket,
        snapshot: Snapshot,
        circumstances: Circumstances,
        owed: dict[str, str],
    ) -> Sequence[Verdict]:
        """What they would take, or what is kept for them."""
        wants = _wants(ticket)
        if wants is None or _is_stopped(ticket):
            return ()
        allowed = None if wants.allowed is None else frozenset(wants.allowed)
        seen_by_them = replace(
            circumstances, allowance=Allowance(allowed), owed=owed, uid=ticket.uid
        )
        verdicts = judge(snapshot, wants.requirements, seen_by_them)
        choice = choose(verdicts, wants.requirements)
        if choice is not None:
            return [one for one in verdicts if one.candidate in choice.candidates]
        possible = sum(
            1 for one in verdicts if one.may_come and one.candidate.gpu.status not in _STAYS
        )
        if possible < wants.requirements.least or time.time() < ticket.at + GATHERS_AFTER:
            return ()
        return [one for one in verdicts if one.refusal is None]


def _wants(ticket: Ticket) -> _Wants | None:
    try:
        wants = msgspec.json.decode(ticket.wants, type=_Wants)
    except (msgspec.MsgspecError, RecursionError):
        return None  # of another version of gpumon, perhaps
    # Anybody may write there, and whoever wants no card stands in nobody's way.
    return wants if 1 <= wants.requirements.least <= wants.requirements.most else None


def _patience(ticket: Ticket) -> float:
    wants = _wants(ticket)
    if wants is None:
        return 0.0
    if wants.requirements.least > 1 and time.time() > ticket.at + GATHERS_AFTER:
        return float("inf")
    return TAKES_SECONDS + (wants.requirements.stable or 0.0)


def _is_stopped(ticket: Ticket) -> bool:
    stat = stat_of("/proc", ticket.pid)
    return stat is not None and stat.state in "Tt"
