"""Each of NVML's codes from each call that is used, while the dashboard runs.

Every card but one fails in the same call, each with another code; then it must be back, while the
same call of its neighbour fails. Which calls there are is counted by the driver, so a new one is
tried as soon as it is used. CI tries every call with every kind of reaction, and every code with
some call; README.md beside this says how to try all of them with all.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle

import pytest

from gpumon.makers.nvidia.queries import PASSES, REACTIONS, Reaction
from tests.driver import GIB, Card, Driver, Faults, Mig, Model, Owner, h100, h100_mig
from tests.screen import Screen

pytestmark = pytest.mark.slow

ALL = "EVERY_CODE" in os.environ
CODES = (*range(1, 31), 999, 4711)
"""All that nvml.h has, and one that it has not."""
OF_A_CARD = [code for code in CODES if REACTIONS.get(code) is not Reaction.DRIVER]

INSTEAD_OF = {
    "nvmlDeviceGetMemoryInfo": ["nvmlDeviceGetMemoryInfo_v2"],
    "nvmlDeviceGetTemperature": ["nvmlDeviceGetTemperatureV"],
    "nvmlDeviceGetCurrentClocksThrottleReasons": ["nvmlDeviceGetCurrentClocksEventReasons"],
    "nvmlDeviceGetFanSpeed": ["nvmlDeviceGetFanSpeed_v2"],
    "nvmlDeviceGetComputeRunningProcesses_v2": ["nvmlDeviceGetComputeRunningProcesses_v3"],
    "nvmlDeviceGetComputeRunningProcesses": [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetComputeRunningProcesses_v2",
    ],
}
"""What is asked only where the driver lacks something newer."""

NOT_SUPPORTED = 3
TENTH = Mig("1g.10gb", 9, memory_total=10 * GIB, memory_used=2 * GIB)
SLOW = "nvmlDeviceGetPcieThroughput"
EVERY_SAMPLE = "nvmlDeviceGetPowerUsage"
OF_THE_WATCH = "nvmlDeviceRegisterEvents"
"""Asked by the thread that waits for XIDs, which does without."""
INIT, COUNT = "nvmlInit_v2", "nvmlDeviceGetCount_v2"
WORDS = {1: "NVML error 1", 9: "is not loaded", 12: "was not found", 18: "was upgraded"}
"""What is said of a code that concerns the driver."""

ZERO = re.compile(r"(?<![\d.:])(?<!for )0+(\.0+)?(?![\d.:/])")
"""But in a length of time, and in the number of an instance."""

QUICK = """
import sys
from gpumon.makers.nvidia import source
source.RETRY_SECONDS = 0.3
from gpumon.cli import main
sys.exit(main(["-n", "0.1"]))
"""
"""The same program, which looks sooner whether a driver is back: here it goes often."""


def kinds() -> list[list[int]]:
    """The codes of each reaction; each of them for itself where all are tried."""
    if ALL:
        return [[code] for code in OF_A_CARD]
    by_reaction: dict[Reaction, list[int]] = {}
    for code in OF_A_CARD:
        by_reaction.setdefault(REACTIONS.get(code, Reaction.FAILING), []).append(code)
    return list(by_reaction.values())


def lines_of(screen: Screen) -> dict[int, str]:
    """What is written about each card, and below it about its instances, by its index."""
    lines: dict[int, str] = {}
    for row in screen.rows()[2:]:
        found = re.match(r" *(?:(\d+)|└ MIG \d+:\d+) ", row)
        if row.startswith("──") or not found:
            break
        index = len(lines) - 1 if found[1] is None else int(found[1])
        written = re.sub(r"[▁-█⠀-⣿·]", " ", row[found.end() :])
        lines[index] = " ".join([*lines.get(index, "").split(), *written.split()])
    return lines


class Room:
    """A machine whose last GPU never fails, and the screen on which its faults are looked at."""

    def __init__(self, driver: Driver, screen: Screen) -> None:
        self.driver, self.screen = driver, screen
        *self.others, self.sound = driver.cards
        self._temperatures = cycle(range(20, 80))
        screen.wait(
            lambda it: sum("● busy" in line for line in lines_of(it).values()) == len(driver.cards),
            "waiting for every GPU",
        )
        self.see_asked(OF_THE_WATCH, driver.cards, [0] * len(driver.cards))
        self.see_asked("nvmlEventSetWait_v2", [driver.system], [0])
        self._usual = lines_of(screen)
        assert not ZERO.search("\n".join(self._usual.values()))

    def see_asked(self, call: str, failing: Sequence[Faults], before: Sequence[int]) -> None:
        """They were asked since they had been asked so often."""
        self.screen.wait(
            lambda _: all(
                one.times(call) > count for one, count in zip(failing, before, strict=True)
            ),
            f"waiting for {call} to be asked",
        )

    def asked_within(self, samples: int) -> list[str]:
        """What a card is asked again at least every so many samples."""
        card = self.others[0]
        before = {call: spent.calls for call, spent in card.calls().items()}
        often = before[EVERY_SAMPLE] + 2 * samples + 2
        self.screen.wait(lambda _: card.times(EVERY_SAMPLE) >= often, "waiting for samples")
        return [call for call, count in before.items() if card.times(call) >= count + 2]

    def see_usual(self, cards: Sequence[Card]) -> None:
        """The sound card shows what it does only now, and these what they did at first."""
        celsius = next(self._temperatures)
        self.sound.temperature = celsius

        def usual(screen: Screen) -> bool:
            lines = lines_of(screen)
            return f" {celsius} " in lines.get(self.sound.index, "") and all(
                lines.get(card.index) == self._usual[card.index] for card in cards
            )

        self.screen.wait(usual, f"waiting for {celsius} °C of the sound GPU and for the others")

    def see_no_zero(self, cards: Sequence[Card], what: str) -> None:
        """What is not known is not 0, and each card has its line."""
        lines = lines_of(self.screen)
        for card in cards:
            assert card.index in lines, what
            assert not ZERO.search(lines[card.index]), what

    def leave(self) -> None:
        """It still lives."""
        self.screen.type("q")
        assert self.screen.wait_end() == 0
        assert b"Traceback" not in self.screen.output


def heal(failing: Faults) -> None:
    """Nothing fails, and nothing takes its time."""
    failing.heal()
    failing.latency(SLOW, 0)


@contextmanager
def room_with(count: int, model: Callable[..., Model], lines: int = 2) -> Iterator[Room]:
    """A room with so many cards, none of which makes anybody wait, or has a 0 on its line.

    The terminal has so many lines for each.
    """
    with Driver((), driver_version="570.124.06") as driver:
        for index in range(count):
            used = (9 + index) * GIB
            card = driver.add_card(
                model(
                    memory_used=used,
                    utilization_gpu=13 + index,
                    temperature=40 + index,
                    power_usage=(200 + index) * 1000,
                )
            )
            card.processes = [Owner(4_000_001 + index, memory=used)]
            heal(card)
        command = [sys.executable, "-c", QUICK]
        with Screen(command, driver.env(), columns=110, lines=lines * count + 16) as screen:
            yield Room(driver, screen)


def try_each(room: Room, calls: Sequence[str], *, midway: bool = False) -> None:
    """Half of the cards fail in a call, each with a code of its own, then the other half does.

    From the first time it is asked on, or midway, where it was answered before.
    """
    half = len(kinds())
    failing, recovering = room.others[:half], room.others[half:]
    for number, call in enumerate(calls):
        for card in recovering:
            heal(card)
        if midway:
            room.driver.reload()
            room.see_usual(room.others)
        before = [card.times(call) for card in failing]
        for card, codes in zip(failing, kinds(), strict=True):
            for newer in INSTEAD_OF.get(call, ()):
                card.fail(newer, NOT_SUPPORTED)
            card.fail(call, codes[number % len(codes)])
        if not midway:
            # All is asked anew then, also what is asked only once.
            room.driver.reload()
        room.see_asked(call, failing, before)
        room.see_usual(recovering)
        room.see_no_zero(failing, call)
        failing, recovering = recovering, failing


def test_each_call_with_each_kind_of_code_is_the_affair_of_one_card() -> None:
    model = partial(h100, fan_count=2, fan_speed=41, pcie_counters=None)
    with room_with(2 * len(kinds()) + 1, model) as room:
        calls = [*room.others[0].calls(), *INSTEAD_OF]
        often = room.asked_within(30 if ALL else 1)
        assert len(calls) > 50
        assert len(often) > 4
        try_each(room, calls)
        for card in room.others:
            heal(card)
        try_each(room, often, midway=True)
        room.leave()


def test_all_calls_of_a_card_may_fail_with_each_code_and_are_back_by_themselves() -> None:
    with room_with(len(OF_A_CARD) + 1, h100) as room:
        for card, code in zip(room.others, OF_A_CARD, strict=True):
            card.fail(None, code)
        # The first may be of a sample that had begun before.
        for _ in range(PASSES + 1):
            room.see_usual([])
        room.see_no_zero(room.others, "all calls")
        lines = lines_of(room.screen)
        for card, code in zip(room.others, OF_A_CARD, strict=True):
            if REACTIONS.get(code, Reaction.FAILING) in {Reaction.GPU, Reaction.FAILING}:
                assert "%" not in lines[card.index], "what it did before is not told for now"
        for card in room.others:
            heal(card)
        # Without the driver being loaded anew: what a card once answered is asked again.
        room.see_usual(room.others)
        room.leave()


def test_each_call_about_instances_with_each_kind_of_code_is_the_affair_of_one_card() -> None:
    with room_with(2 * len(kinds()) + 1, partial(h100_mig, TENTH), 4) as room:
        calls = [call for call in room.others[0].calls() if re.search("Mig|Inst|Attrib", call)]
        assert len(calls) > 4
        try_each(room, calls)
        room.leave()


def test_each_code_that_concerns_no_card_is_told_or_does_no_harm() -> None:
    with room_with(3, h100) as room:
        system, card = room.driver.system, room.others[0]
        calls = [*system.calls(), *card.calls()]
        of_the_driver = [(call, code) for call in calls for code in WORDS]
        of_no_use = [(call, code) for call in system.calls() for code in OF_A_CARD]
        if not ALL:
            of_the_driver = of_the_driver[:: 8 * len(WORDS) - 1]
            of_no_use = of_no_use[:: len(OF_A_CARD) - 1]
        for call, code in of_the_driver + of_no_use:
            asked = card if call in card.calls() else system
            before = asked.times(call)
            asked.fail(call, code)
            room.driver.reload()
            room.see_asked(call, [asked], [before])
            if call == OF_THE_WATCH:
                room.see_usual(room.others)
            elif call == INIT and code not in WORDS:
                room.screen.wait_for("The NVIDIA driver does not answer|You have no permission")
            elif code in WORDS and (asked is card or call in {INIT, COUNT}):
                room.screen.wait_for(WORDS[code])
            else:
                room.see_usual(room.others)
            heal(asked)
            room.see_usual(room.others)
        room.leave()
