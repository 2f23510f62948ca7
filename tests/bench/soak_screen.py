"""The same days before a screen: ``python -m tests.bench.soak_screen``.

The whole application without a terminal on the machine of ``soak``, with real processes among those
that come and go, the looks at ``/proc``, and a log that is written. Once an hour somebody does all
that can be done: goes back in time and comes back, opens every page and dialog, filters, ends the
log and begins another. Nothing of that may be left after the first hours: no thread, no open file,
no part of a screen, and no memory beside what tape and history keep.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpumon.kill.audit_log import AuditLog
from gpumon.kill.local_host import LocalHost
from gpumon.makers.nvidia import MAKER
from gpumon.sampling.enrichment import Lookup
from gpumon.ui.app import GpumonApp
from gpumon.ui.session import Logbook, Session
from tests.bench.soak import HEAD, Day, Figures, grown, machine, tell
from tests.build import GivenMachine
from tests.driver import Driver, owners
from tests.fuzz.hand import Press
from tests.fuzz.test_screen import ScreenTime, settled
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from textual.pilot import Pilot

_REAL = 20
"""How many of the processes are there in fact, and can be looked at."""
_DRAWN = 10
_WARM = 2
"""Hours after which all that is imported and made once has been."""
_GLANCE = 0.01
_AN_HOUR_S_WORK = (
    *("[", "(", "shift+left", "p", "+", "escape", "escape", "tab", "enter", "escape", "escape"),
    *("down", "enter", "s", "escape", "escape", "f1", "escape", "T", "down", "escape"),
    *("e", "escape", "ctrl+p", "escape", "/", "1", "0", "escape", "t", "t", "u", "u", "g", "g"),
    *("down", "k", "escape", "escape", "[", "@", "escape", "escape", "L", "L"),
)


class ScreenDay(Day):
    """The machine, and somebody who looks at it."""

    def __init__(self, driver: Driver, interval: float, pids: list[int], folder: Path) -> None:
        host = LocalHost(lambda: MAKER.device_files)
        self._lookup = Lookup(host)
        super().__init__(driver, interval, annotate=self._lookup.annotate)
        self._pids = cycle(pids)
        self._logbook = Logbook(self._collector, str(folder / "soak.csv"))
        self.app = GpumonApp(
            Session(
                GivenMachine(self._source, host),
                *(self._collector, self._history, self._lookup),
                *(AuditLog(folder / "state"), self._tape, self._logbook),
            )
        )
        self._lookup.start()
        self._logbook.start()

    def close(self) -> None:
        self._lookup.stop()
        self._logbook.close()
        super().close()

    async def live_on(self, pilot: Pilot[int], passing: ScreenTime) -> Figures:
        """Let an hour pass; what it came to."""
        ticks, drawn = [], []
        for number in range(round(3600 / self._interval)):
            ticks.append(self._tick())
            if number % _DRAWN == 0:
                passing.pass_by(_DRAWN * self._interval)
                began = time.thread_time()
                await settled(pilot)
                drawn.append(time.thread_time() - began)
        assert self.app._driver is not None
        for key in _AN_HOUR_S_WORK:
            for event in Press(key).events(self.app.size):
                self.app._driver.process_message(event)
            await self._until_shown(pilot)
        return self._figures(ticks, drawn)

    async def _until_shown(self, pilot: Pilot[int]) -> None:
        """Wait until a key has done all it does, in the past too."""
        await settled(pilot)
        deadline = time.monotonic() + PATIENCE
        while not self.app.workspace.viewed_time.settled:
            assert time.monotonic() < deadline
            await asyncio.sleep(_GLANCE)

    def _newcomer(self) -> int:
        taken = {owner.pid for owner in self._owners}
        real = next(self._pids)
        return real if real not in taken else super()._newcomer()


async def live(day: ScreenDay, hours: int) -> list[str]:
    """Let the hours pass and tell of each; what has grown after the first ones, in words."""
    print(HEAD)
    first: tuple[Figures, int] | None = None
    with pytest.MonkeyPatch.context() as patch:
        passing = ScreenTime(patch)
        async with day.app.run_test(size=(200, 50)) as pilot:
            for hour in range(hours):
                figures = await day.live_on(pilot, passing)
                parts = len(day.app._registry)
                tell(figures)
                if first is None or hour < _WARM:
                    first = figures, parts
    assert first is not None
    words = grown(first[0], figures)
    if parts > first[1]:
        words.append(f"parts of screens from {first[1]} to {parts}")
    return words


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds of a sample")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, owners(_REAL) as started, machine() as driver:
        day = ScreenDay(driver, options.interval, [one.pid for one in started], Path(folder))
        try:
            words = asyncio.run(live(day, options.hours))
        finally:
            day.close()
    print(f"Grown after the first {_WARM} hours: {', '.join(words) or 'nothing'}.")
    return 1 if words else 0


if __name__ == "__main__":
    sys.exit(main())
