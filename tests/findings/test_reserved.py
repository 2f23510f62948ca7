"""What is said of a card that somebody has reserved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gpumon.findings import FindingKind, Severity, conditions, gpu_findings, gpu_state
from gpumon.model.snapshot import Gpu, Reserved
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot

if TYPE_CHECKING:
    from gpumon.model.processes import GpuProcess

ANN = Reserved("GPU-0", user="ann", pid=4711, since=NOON - 720, command="python train.py")


def history_of(
    *reserved: Reserved, card: Gpu | None = None, processes: tuple[GpuProcess, ...] = ()
) -> History:
    history = History(conditions())
    seen = snapshot(NOON, card or gpu(), gpu(index=1), processes=processes)
    history.add(msgspec.structs.replace(seen, reserved=reserved))
    return history


def test_a_reserved_card_is_not_free_and_says_who_keeps_it_since_when() -> None:
    history = history_of(ANN)
    state = gpu_state(history, gpu())
    assert (state.kind, state.severity) == (FindingKind.RESERVED, Severity.NOTE)
    assert state.short == "reserved by ann 12m"
    assert state.sentence == "reserved by ann for 12m: gpumon run keeps it for a job"
    assert (state.evidence, state.since) == (("gpumon run 4711: python train.py",), NOON - 720)
    assert FindingKind.FREE not in {one.kind for one in gpu_findings(history, gpu())}
    assert gpu_state(history, gpu(index=1)).kind is FindingKind.FREE


def test_a_reserved_card_at_work_is_no_news() -> None:
    busy = gpu(memory_used=GIB, utilization_gpu=90)
    state = gpu_state(history_of(ANN, card=busy, processes=(process(),)), busy)
    assert (state.kind, state.severity) == (FindingKind.RESERVED, Severity.QUIET)


def test_what_is_wrong_with_a_card_goes_before_who_keeps_it() -> None:
    hot = gpu(temperature_gpu=92)
    found = gpu_findings(history_of(ANN, card=hot), hot)
    assert found[0].kind is FindingKind.HOT
    assert FindingKind.RESERVED in {one.kind for one in found}


def test_a_reserved_mig_device_is_told_of_its_card() -> None:
    state = gpu_state(history_of(msgspec.structs.replace(ANN, mig_uuid="MIG-1")), gpu())
    assert state.sentence.startswith("a MIG device of it is reserved by ann for 12m")


def test_who_it_is_may_not_be_known() -> None:
    state = gpu_state(history_of(Reserved("GPU-0")), gpu())
    assert (state.short, state.since) == ("reserved", None)
    assert "is not visible here" in state.evidence[0]


def test_further_reservations_are_counted() -> None:
    assert gpu_state(history_of(ANN, ANN, ANN), gpu()).short == "reserved by ann 12m +2"
