"""The words of findings whose numbers no other test reads."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.findings import FindingKind, conditions, explain, gpu_findings
from gpumon.findings.groups import allocated_jobs, jobs, users
from gpumon.findings.growth import Growth
from gpumon.findings.phrases import all_of
from gpumon.findings.registry import RULES
from gpumon.model.allocations import Allocation
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot

pytestmark = pytest.mark.usefixtures("utc")

BRAKE, CAP = 0x80, 0x04


def lately(bits: int, *, slowed: int, observed: int = 1000) -> dict[FindingKind, tuple[str, ...]]:
    """The evidence of findings after so many seconds, of which so many at first were slowed."""
    history = History(conditions())
    card = gpu(utilization_gpu=95)
    for seconds in range(0, observed + 1, 10):
        card = replace(card, clock_event_reasons=bits if seconds <= slowed else 0)
        history.add(snapshot(NOON + seconds, card, processes=(process(),)))
    return {finding.kind: finding.evidence for finding in gpu_findings(history, card)}


@pytest.mark.parametrize(
    ("bits", "slowed", "observed", "evidence"),
    [
        (BRAKE, 200, 1000, ("HW power brake: 20 % of the last 16 m",)),
        (BRAKE, 10, 1000, ("HW power brake: 1 % of the last 16 m",)),
        (BRAKE, 0, 1000, None),
        (BRAKE, 300, 500, None),
        (CAP, 700, 1000, ("SW power cap: 70 % of the last 16 m",)),
        (CAP, 400, 1000, None),
        (CAP | BRAKE, 400, 1000, ("HW power brake: 40 % of the last 16 m",)),
    ],
    ids=["brake", "a hundredth", "none", "too short", "long cap", "short cap", "cap and brake"],
)
def test_the_details_say_for_which_share_the_clocks_were_lowered(
    bits: int, slowed: int, observed: int, evidence: tuple[str, ...] | None
) -> None:
    found = lately(bits, slowed=slowed, observed=observed)
    assert found.get(FindingKind.SLOWED_LATELY) == evidence


def test_a_slowdown_says_for_which_share_of_the_last_hour_it_held() -> None:
    evidence = lately(BRAKE, slowed=2000)[FindingKind.THROTTLED]
    assert evidence == (
        "clock event reasons: HW power brake",
        "HW power brake in 100 % of the last 16 m",
        "SM clock 1980 MHz",
    )


def test_a_slow_link_says_both_that_it_is_and_may_be() -> None:
    history = History(conditions())
    link = {"pcie_generation": 4, "pcie_width": 8, "pcie_generation_max": 5, "pcie_width_max": 16}
    for seconds in range(0, 201, 10):
        card = gpu(utilization_gpu=95, **link)
        history.add(snapshot(NOON + seconds, card, processes=(process(),)))
    found = {finding.kind: finding for finding in gpu_findings(history, card)}
    assert found[FindingKind.SLOW_LINK].evidence == (
        "PCIe generation 4 of 5, width x8 of x16",
        "at least 50 % busy in 21 samples",
    )


def test_every_advice_is_a_text_in_the_words_of_the_maker() -> None:
    history = History(conditions())
    history.add(snapshot(NOON, gpu()))
    (finding,) = gpu_findings(history, gpu())
    for kind, rule in RULES.items():
        advice = explain(history, replace(finding, kind=kind)).advice
        assert len(advice) == len(rule.explanation.advice)
        assert not any("{" in text for text in advice)


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (0.1, "1 min"),
        (9, "9 min"),
        (11, "10 min"),
        (118, "120 min"),
        (121, "2 h"),
        (210, "4 h"),
        (600, "10 h"),
        (601, None),
    ],
)
def test_a_forecast_is_as_precise_as_it_can_be(minutes: float, text: str | None) -> None:
    growth = Growth(rate=1000.0, rise=1000.0 * 3600, seconds=3600.0, fit=1.0)
    assert growth.full_in(round(1000 * 60 * minutes)) == text


@pytest.mark.parametrize(
    ("allocation", "key"),
    [
        (Allocation("slurm", "5", "ann", ("GPU-0",)), "slurm 5"),
        (Allocation("slurm", "4_1", "ann", ("GPU-0",), number="9"), "slurm 9"),
        (Allocation("kubernetes", "ml/train", None, ("GPU-0",)), "pod ml/train"),
        (Allocation("lsf", None, None, ("GPU-0", "GPU-1")), "GPU-0 GPU-1"),
    ],
)
def test_a_job_without_a_process_has_the_key_of_its_processes(
    allocation: Allocation, key: str
) -> None:
    seen = replace(snapshot(NOON, gpu()), allocations=(allocation,))
    history = History(conditions())
    history.add(seen)
    assert [job.key for job in jobs((), allocated_jobs(seen, history))] == [key]


@pytest.mark.parametrize(
    ("status", "at_least"),
    [(GpuStatus.OK, False), (GpuStatus.ASLEEP, False), (GpuStatus.LOST, True)],
)
def test_what_a_user_has_is_a_least_while_a_gpu_does_not_answer(
    status: GpuStatus, *, at_least: bool
) -> None:
    cards: tuple[Gpu, ...] = (gpu(), gpu(index=1, status=status))
    seen = snapshot(NOON, *cards, processes=(process(memory_used=GIB),))
    history = History(conditions())
    history.add(seen)
    assert [use.at_least for use in users(seen, history)] == [at_least]


@pytest.mark.parametrize(("count", "text"), [(1, "1 sample"), (2, "all 2 samples")])
def test_samples_are_counted(count: int, text: str) -> None:
    assert all_of(count, "sample") == text
