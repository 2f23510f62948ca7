"""Whether a card is free is one rule: the screen, ``w``, ``select``, ``run`` and ``wait`` agree."""

from __future__ import annotations

import tempfile
from contextlib import closing

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.findings import FindingKind, conditions, gpu_findings, not_free
from gpumon.model.allocations import Allocation
from gpumon.model.processes import GpuProcess, GpuUse
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, Reserved, Unknown
from gpumon.recording.history import History
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.waiting import WaitResult
from gpumon.ui.alert_controller import AlertController
from gpumon.ui.session import SessionAlerts
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.scheduling.test_wait import goal

MIB = 2**20
SIZES = st.sampled_from(
    (0, 0, 4 * MIB, 256 * MIB, 257 * MIB, 500 * MIB, 768 * MIB, 900 * MIB, GIB, 40 * GIB, None)
)
SLICE = MigInstance("MIG-1", 0, gpu_instance=7, compute_instance=0, memory_total=10 * GIB)
RARELY = st.sampled_from((*[None] * 7, "yes"))
"""What makes a card not free whatever else is so must be rare, or nothing else is tried."""


@st.composite
def cards(draw: st.DrawFn) -> Gpu:
    fields: dict[str, object] = {
        "memory_used": draw(SIZES),
        "memory_reserved": draw(st.sampled_from((None, GIB // 2))),
        "memory_unified": draw(st.booleans()),
        "utilization_gpu": draw(st.sampled_from((0, 0, 0, 1, 60, None))),
        "display_active": draw(st.sampled_from((None, False, True))),
        "sampled_at": draw(st.sampled_from((None, NOON))),
        "unknown": draw(st.sampled_from(({}, {}, {"utilization_gpu": Unknown.NOT_SUPPORTED}))),
    }
    spoilt = (
        ("status", draw(st.sampled_from(GpuStatus))),
        ("compute_mode", draw(st.sampled_from(("Prohibited", "Exclusive_Process", "Default")))),
        ("remapped_rows_pending", True),
        ("ecc_uncorrected_volatile", 2),
        ("recovery_action", draw(st.sampled_from(("none", "reset the card")))),
        ("sampled_at", NOON - 30),
        ("unknown", {"processes": Unknown.NO_PERMISSION}),
        ("temperature_gpu", 95),
        ("xid", 79),
    )
    fields.update((name, value) for name, value in spoilt if draw(RARELY))
    if draw(st.booleans()):
        used = draw(SIZES)
        fields |= {"mig": (replace(SLICE, memory_used=used),), "mig_mode": True}
    return gpu(**fields)


@st.composite
def owners(draw: st.DrawFn) -> GpuProcess:
    one = process(
        draw(st.integers(2, 9)),
        type_=draw(st.sampled_from(("G", "G", "G", "C", "C+G"))),
        visible=draw(st.booleans()),
    )
    instance = draw(st.sampled_from((None, (7, 0), (8, 0))))
    return replace(one, uses=(GpuUse("GPU-0", 0, instance, draw(SIZES)),))


@settings(deadline=None, max_examples=200)
@given(
    card=cards(),
    processes=st.lists(owners(), max_size=2, unique_by=lambda one: one.id),
    listed_at=st.sampled_from((NOON, NOON, NOON, NOON - 4, NOON - 30, None)),
    in_container=st.booleans(),
    kept=st.sampled_from((None, None, None, "GPU-0", "MIG-1")),
    allocations=st.sampled_from(
        (
            *(None, None, None, ()),
            (Allocation("slurm", "7", "bo", ("GPU-0",)),),
            (Allocation("slurm", "7", "bo", ("MIG-1",)),),
            (Allocation("slurm", "7", "bo", unplaced=1),),
            (Allocation("slurm", unplaced=None),),
            (Allocation("slurm", "7", "bo", ("GPU-9",)),),
        )
    ),
)
def test_nothing_disagrees_whether_a_card_is_free(
    card: Gpu,
    processes: list[GpuProcess],
    listed_at: float | None,
    in_container: bool,
    kept: str | None,
    allocations: tuple[Allocation, ...] | None,
) -> None:
    mig = card.mig[0] if card.mig else None
    kept = "GPU-0" if kept is not None and mig is None else kept
    seen = snapshot(
        NOON, card, processes=tuple(processes), processes_at=listed_at, in_container=in_container
    )
    seen = replace(seen, allocations=allocations)
    if kept is not None:
        device = None if kept == "GPU-0" else kept
        seen = replace(seen, reserved=(Reserved("GPU-0", device, user="bo"),))
    history = History(conditions())
    history.add(seen)

    asked = Requirements(mig=mig is not None)
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Locks(f"{folder}/locks", {})) as theirs,
        closing(Locks(f"{folder}/locks", {})) as mine,
    ):
        reservation = None if kept is None else theirs.take([kept], "train.py")
        (verdict,) = Chooser(asked, {}, mine).judge(seen)
        waited = goal("free", asked, {}, mine).judge(seen) is WaitResult.FOUND
        if reservation is not None:
            reservation.close()

    screen = not_free(history, card, mig) is None
    assert (verdict.refusal is None) == waited == screen
    if mig is None:
        assert screen == (FindingKind.FREE in {one.kind for one in gpu_findings(history, card)})
        told = AlertController(
            SessionAlerts(), history, lambda *_: None, lambda *_: None, lambda: None, lambda _: None
        )
        assert screen == (told.toggle(card) == "GPU 0 is free")
