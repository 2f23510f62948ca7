"""Links, clocks and memory on the simulated driver: each verdict comes in its time and goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpumon.findings import Finding, FindingKind, Severity, conditions, gpu_findings, gpu_state
from gpumon.recording.history import History
from tests.driver import GIB, Card, h100
from tests.known import known
from tests.makers.nvml_room import Room
from tests.makers.nvml_room import furnish as furnish  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.usefixtures("utc")

POWER_CAP, POWER_BRAKE = 0x04, 0x88


class Watched:
    """A room with a GPU, and the history of what was sampled there."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.history = History(conditions())
        room.open()

    @property
    def card(self) -> Card:
        return self.room.driver.cards[0]

    def sample(
        self, seconds: int, change: Callable[[int], None] = lambda _: None, *, step: int = 1
    ) -> None:
        """So many seconds, sampled every few, each after a change of the driver's values."""
        for second in range(0, seconds, step):
            change(second)
            self.history.add(self.room.sample(float(step)))

    def found(self) -> dict[FindingKind, Finding]:
        found = gpu_findings(self.history, known(self.history.latest).gpus[0])
        return {finding.kind: finding for finding in found}

    def state(self) -> Finding:
        return gpu_state(self.history, known(self.history.latest).gpus[0])


@pytest.fixture
def watch(furnish: Callable[..., Room]) -> Callable[..., Watched]:
    """Makes a machine with an H100 of these values."""

    def make(**values: int) -> Watched:
        return Watched(furnish(h100(**values)))

    return make


def test_a_slow_link_is_told_under_load_only(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=0, pcie_generation=1, pcie_width=16)
    seen.sample(200)
    assert FindingKind.SLOW_LINK not in seen.found()
    seen.card.utilization_gpu = 95
    seen.sample(119)
    assert FindingKind.SLOW_LINK not in seen.found()
    seen.card.pcie_generation = 5
    seen.sample(60)
    assert FindingKind.SLOW_LINK not in seen.found()
    seen.card.pcie_generation, seen.card.pcie_width = 3, 8
    # The link is read several times a minute.
    seen.sample(150)
    found = seen.found()[FindingKind.SLOW_LINK]
    assert (found.short, found.severity) == ("slow PCIe: gen 3 of 5, x8 of x16", Severity.NOTE)
    assert "may be slower" in found.sentence
    seen.card.pcie_generation, seen.card.pcie_width = 5, 16
    seen.sample(30)
    assert FindingKind.SLOW_LINK not in seen.found()


def test_nvlink_errors_that_grow_are_a_warning(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=50, nvlink_replays=1_000)
    seen.sample(10)
    # Those of before gpumon looked say nothing of now.
    assert FindingKind.NVLINK_ERRORS not in seen.found()
    seen.card.nvlink_recoveries = 1
    seen.sample(10)
    found = seen.found()[FindingKind.NVLINK_ERRORS]
    assert (found.severity, found.short) == (Severity.NOTE, "1 NVLink error")
    seen.card.nvlink_replays = 1_041
    seen.sample(10)
    found = seen.state()
    assert (found.kind, found.severity) == (FindingKind.NVLINK_ERRORS, Severity.WARNING)
    assert found.short == "42 NVLink errors"
    assert "1042 counted since the driver was loaded" in found.evidence
    seen.sample(3_600, step=10)
    assert FindingKind.NVLINK_ERRORS not in seen.found()


def test_a_driver_that_was_loaded_anew_is_no_nvlink_error(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=50, nvlink_replays=1_000)
    seen.sample(10)
    seen.card.nvlink_replays = 0
    seen.sample(10)
    assert FindingKind.NVLINK_ERRORS not in seen.found()


@pytest.mark.slow
def test_a_power_cap_is_told_with_its_share_and_never_leads(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=95, clock_event_reasons=POWER_CAP)
    seen.sample(300)
    assert FindingKind.SLOWED_LATELY not in seen.found()
    seen.sample(400)
    found = seen.found()[FindingKind.SLOWED_LATELY]
    assert (found.severity, found.short) == (Severity.QUIET, "SW power cap 100% lately")
    assert seen.state().kind is not FindingKind.SLOWED_LATELY
    assert next(iter(seen.found())) is seen.state().kind
    seen.sample(2_300, step=10)
    seen.card.clock_event_reasons = 0
    # 1,200 of its 3,000 seconds are in the last hour.
    seen.sample(2_400, step=10)
    assert FindingKind.SLOWED_LATELY not in seen.found()


@pytest.mark.slow
def test_a_power_brake_says_its_share_of_the_last_hour(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=95, clock_event_reasons=0)

    def brake(second: int) -> None:
        seen.card.clock_event_reasons = POWER_BRAKE if second % 100 < 20 else 0

    seen.sample(3_610, brake)
    found = seen.state()
    assert (found.kind, found.severity) == (FindingKind.THROTTLED, Severity.WARNING)
    assert "HW power brake in 19 % of the last 1 h 00 m" in found.evidence
    seen.sample(60, lambda _: brake(50))
    # What has passed is told with the details.
    found = seen.found()[FindingKind.SLOWED_LATELY]
    assert "HW power brake 19 %" in found.sentence
    assert found.severity is Severity.QUIET
    seen.sample(3_700, lambda _: brake(50), step=10)
    assert FindingKind.SLOWED_LATELY not in seen.found()


@pytest.mark.slow
def test_memory_that_grows_on_the_driver_is_foreseen_full(watch: Callable[..., Watched]) -> None:
    seen = watch(utilization_gpu=95, memory_used=8 * GIB)

    def grow(second: int) -> None:
        seen.card.memory_used = 8 * GIB + second * GIB // 60

    seen.sample(1_000, grow)
    found = seen.found()[FindingKind.FILLING]
    assert found.short.startswith("full in about ")
    assert found.evidence[0].startswith("GPU memory rose by 14.")
    seen.sample(400)
    assert FindingKind.FILLING not in seen.found()
