"""The demo as a source: what its driver would say at each moment."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.clock import SystemClock
from gpumon.model import GpuProcess, GpuUse, HolderScan, Host, Snapshot
from gpumon.selection import ALL, GpuSelection
from gpumon.sources import NoSuchCardError
from gpumon.sources.demo.cards import (
    decoding_of,
    make_noise,
    memory_activity,
    read,
    utilization_of,
)
from gpumon.sources.demo.cast import LEADS
from gpumon.sources.demo.curves import mean, ripples, steady, together
from gpumon.sources.demo.story import GIB, HOUR, PAST
from gpumon.sources.demo.world import State, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.clock import Clock
    from gpumon.sources import Call
    from gpumon.sources.demo.beings import Being, Role
    from gpumon.sources.demo.host import DemoHost
    from gpumon.sources.demo.story import Share

# (from so many seconds before the start, seconds from one snapshot to the next): as fine as the
# charts of that past look, and no finer, since all of it is told before the first frame.
_PAST_STEPS = ((PAST, 60.0), (1800.0, 15.0), (120.0, 1.0))


class _Lists(Struct, frozen=True):
    """What the driver lists of its processes at one moment, and who else holds the cards.

    Attributes:
        at: When it was asked, seconds since the epoch.
        state: How the story went then.
        processes: Those with work on a card.
        holders: Who only holds their device files; ``None`` before the demo began.
        used: Bytes in use of each card.
    """

    at: float
    state: State
    processes: tuple[GpuProcess, ...]
    holders: HolderScan | None
    used: tuple[int, ...]


class DemoSource:
    """The demo as a ``gpumon.sources.Source``."""

    def __init__(
        self, seed: int = 1, clock: Clock | None = None, selection: GpuSelection = ALL
    ) -> None:
        """Begin the story now.

        Args:
            seed: Chooses the machine: names of its cards, and when what rises and falls.
            clock: Where the time comes from; the machine's own by default.
            selection: Which of the cards are looked at, and what processes have on them.
        """
        random = Random(seed)  # noqa: S311 - a story is told here, no secret is made
        self._world = World(random, clock or SystemClock())
        self._start = self._world.start
        self._selection = selection
        self._shown = [c for c in self._world.cards if selection.includes(c.index, c.uuid)]
        self._leads = self._on({card.index for card in self._shown})
        self._cpu_busy = together(
            steady(0.41), ripples(*make_noise(random, 0.06), (0.05, 97.0, random.random()))
        )
        self._lists: _Lists | None = None

    def host(self, *, readonly: bool = False) -> DemoHost:
        """The processes of this machine, to be looked at and signalled; none of them is real.

        Args:
            readonly: Whether every signal is refused.
        """
        from gpumon.sources.demo.host import DemoHost

        return DemoHost(self._world, self._shown, readonly=readonly)

    def open(self) -> None:
        """Nothing to make ready; there may be nothing to show.

        Raises:
            NoSuchCardError: When one was chosen that it does not have.
        """
        cards = self._world.cards
        missing = self._selection.missing(len(cards), [card.uuid for card in cards])
        if missing:
            raise NoSuchCardError(missing, len(cards), "The demo")

    def close(self) -> None:
        """Nothing to give back."""

    def give_up(self, _call: Call) -> bool:
        """Never: no driver is asked."""
        return False

    @property
    def hostname(self) -> str:
        """See ``Source.hostname``."""
        return "ada-07"

    @property
    def current_call(self) -> Call | None:
        """Always ``None``: no driver is asked."""
        return None

    @property
    def driver_seconds(self) -> float:
        """Always 0: no driver is asked."""
        return 0.0

    def sample(self, *, closely: bool = True) -> Snapshot:  # noqa: ARG002 - the protocol's signature
        """The machine as it is now."""
        return self._at(self._world.clock.time())

    def past(self) -> Iterator[Snapshot]:
        """The four hours before the demo began, coarsely at first, by the second at the end.

        To be fed to the history before the first sample, so that graphs are filled and what is
        said of the past has been seen.
        """
        ends = (*(before for before, _ in _PAST_STEPS[1:]), 0.0)
        for (before, step), end in zip(_PAST_STEPS, ends, strict=True):
            for number in range(round((before - end) / step)):
                yield self._at(self._start - before + number * step)

    def _at(self, time: float) -> Snapshot:
        state = self._world.state
        lists = self._listed(time, state)
        return Snapshot(
            time=time,
            host=self._host(time),
            gpus=tuple(
                [
                    read(state.cards[card.index], self._start, time, lists.used[card.index])
                    for card in self._shown
                ]
            ),
            processes=lists.processes,
            processes_at=lists.at,
            source="demo",
            holders=lists.holders,
        )

    def _host(self, time: float) -> Host:
        now = time - self._start
        busy = self._cpu_busy
        return Host(
            name=self.hostname,
            driver_version="570.124.06",
            nvml_version="12.570.124.06",
            cuda_version="12.8",
            driver_since=self._start - PAST,
            cpu_percent=round(100 * mean(busy, now, 1.0), 1),
            cpu_count=96,
            load=(
                round(93 * mean(busy, now, 60.0), 2),
                round(93 * mean(busy, now, 300.0), 2),
                round(93 * mean(busy, now, 900.0), 2),
            ),
            memory_total=1008 * GIB,
            memory_used=int((205 + 17 * mean(busy, now, 20.0)) * GIB),
        )

    def _on(self, cards: set[int]) -> list[tuple[Role, tuple[Share, ...]]]:
        """Who has a share of some of these cards, and which."""
        found = []
        for lead in LEADS:
            shares = tuple(share for share in lead.shares if share.card in cards)
            if shares:
                found.append((self._world.roles[lead.pid], shares))
        return found

    def _listed(self, time: float, state: State) -> _Lists:
        # Process lists have a slower pace than the cards, as they have with a real driver; what a
        # signal brought about shows at once, and the demo begins with a look.
        at = float(math.floor(time))
        now, asked = at - self._start, time - self._start
        newest = max(state.deeds.newest(asked), 0.0 if asked >= 0 else now)
        if newest > now:
            at, now = self._start + newest, newest
        # Remembered for the samples that follow in the same second; it could as well be made anew.
        if self._lists is None or self._lists.at != at or self._lists.state is not state:
            processes = self._processes(now, state)
            used = self._world.stray(now, state.deeds)
            for process in processes:
                for use in process.uses:
                    used[use.gpu_index] += use.memory_used or 0
            # Who holds a card besides is looked for from the start on, as by a real gpumon.
            holders = self._world.scan(self._shown, now, state.deeds) if now >= 0 else None
            self._lists = _Lists(at, state, processes, holders, tuple(used))
        return self._lists

    def _processes(self, now: float, state: State) -> tuple[GpuProcess, ...]:
        utilizations = [utilization_of(card, now) for card in self._world.cards]
        found = []
        for role, shares in self._leads:
            being = self._world.present(role, now, state.deeds)
            if being is not None:
                found.append(self._process(being, shares, now, state, utilizations))
        return tuple(found)

    def _process(
        self,
        being: Being,
        shares: tuple[Share, ...],
        now: float,
        state: State,
        utilizations: list[int],
    ) -> GpuProcess:
        role, actor = being.role, being.role.actor
        stopped = state.deeds.stopped(being.id, now)
        # Allocators take memory from the driver in large blocks.
        grown = int(actor.gib_per_hour * (now - being.began) / HOUR * 8) * (GIB // 8)
        uses = []
        for share in shares:
            card = self._world.cards[share.card]
            sm = 0 if stopped else round(share.part * utilizations[share.card])
            decoder = decoding_of(card, now) if share.decodes and not stopped else 0
            uses.append(
                GpuUse(
                    gpu_uuid=card.uuid,
                    gpu_index=share.card,
                    memory_used=int(share.gib * 512) * (GIB // 512) + grown,
                    sm=sm,
                    memory_activity=memory_activity(sm),
                    encoder=0,
                    decoder=decoder,
                )
            )
        busy = utilizations[shares[0].card] / 100
        return GpuProcess(
            id=being.id,
            type=actor.type,
            uses=tuple(uses),
            user=actor.user,
            uid=role.uid,
            name=role.name,
            command=role.command,
            state=self._world.letter(being, now, state.deeds),
            cpu_percent=0.0 if stopped else round(actor.cpu * (0.8 + 0.4 * busy), 1),
            rss=int(actor.rss_gib * GIB),
            started_at=self._start + being.began,
            place=role.place,
        )
