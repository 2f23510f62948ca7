"""The cards: whether each answers, how it is kept ready, what is wrong with its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor.kernel_log import read_xids
from gpumon.doctor.result import Verdict, failed, passed, unknown, warned
from gpumon.doctor.words import index_list
from gpumon.findings.errors import LOOK_IT_UP, PROGRAM_XIDS, XID_MEANINGS
from gpumon.health import memory_faults, recovery_action
from gpumon.model import CardStatus
from gpumon.sources.nvml.sleep import may_sleep
from gpumon.text import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.doctor.case import Case
    from gpumon.doctor.kernel_log import Xid
    from gpumon.doctor.result import Result
    from gpumon.model import Gpu

_TOLD = 8
"""How many errors of the kernel's log are listed."""

_WRONG = {
    CardStatus.LOST: (Verdict.FAIL, "fell off the bus"),
    CardStatus.RESET_REQUIRED: (Verdict.FAIL, "must be reset"),
    CardStatus.FAILING: (Verdict.FAIL, "fails"),
    CardStatus.NO_ANSWER: (Verdict.FAIL, "does not answer"),
    CardStatus.NO_PERMISSION: (Verdict.WARN, "may not be used by you"),
}


def _cards(gpus: Sequence[Gpu]) -> str:
    return f"card{'' if len(gpus) == 1 else 's'} {index_list(gpu.index for gpu in gpus)}"


def answering(case: Case) -> Result | None:
    """Whether every card answers the driver."""
    name = "cards answer"
    gpus = case.gpus
    if not gpus:
        return None
    wrong = [gpu for gpu in gpus if gpu.status in _WRONG]
    details = tuple(f"card {gpu.index} {_WRONG[gpu.status][1]}" for gpu in wrong)
    if any(_WRONG[gpu.status][0] is Verdict.FAIL for gpu in wrong):
        return failed(
            name,
            f"{_cards(wrong).capitalize()} cannot be used.",
            "`sudo dmesg | grep NVRM` says what happened. A card that must be reset: end what uses "
            "it, then `sudo nvidia-smi --gpu-reset -i INDEX`; one that fell off the bus often "
            "takes a reboot.",
            *details,
        )
    if wrong:
        return warned(
            name,
            f"{_cards(wrong).capitalize()} may not be used by you.",
            "A batch system grants cards only inside a job, a container only those it was started "
            "with; else see the device files above.",
            *details,
        )
    models: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        models.setdefault(gpu.name or "a card without a name", []).append(gpu)
    return passed(
        name,
        "Yes, all of them." if len(gpus) > 1 else "Yes.",
        *(f"{index_list(gpu.index for gpu in same)}: {model}" for model, same in models.items()),
    )


def persistence(case: Case) -> Result | None:
    """Whether the cards stay initialised while nobody uses them."""
    name = "persistence mode"
    if case.in_wsl or not case.gpus:
        return None
    sys = str(case.machine.path("/sys"))
    server = [
        gpu
        for gpu in case.gpus
        if gpu.status is CardStatus.OK
        and not (gpu.pci_bus_id is not None and may_sleep(gpu.pci_bus_id, sys))
    ]
    if not server:
        return passed(name, "Not needed: these cards power down while nobody uses them.")
    if all(gpu.persistence_mode is None for gpu in server):
        return unknown(name, "The driver does not tell.")
    off = [gpu for gpu in server if gpu.persistence_mode is False]
    if not off:
        return passed(name, "On.")
    return warned(
        name,
        f"Off on {_cards(off)}: the first program on an unused card waits 1 to 3 s, and error "
        "counters and power limits are forgotten in between.",
        "`sudo systemctl enable --now nvidia-persistenced`, or `sudo nvidia-smi -pm 1` until the "
        "next reboot.",
    )


def memory_health(case: Case) -> Result | None:
    """ECC errors, rows and pages to be replaced, and what the driver asks for."""
    name = "card memory"
    gpus = [gpu for gpu in case.gpus if gpu.status is CardStatus.OK]
    if not gpus:
        return None
    faults = [(gpu, fault) for gpu in gpus for fault in memory_faults(gpu)]
    asked = [(gpu, action) for gpu in gpus if (action := recovery_action(gpu)) is not None]
    details = (
        *(f"card {gpu.index}: {fault.sentence}" for gpu, fault in faults),
        *(f"card {gpu.index}: the driver asks for {action}" for gpu, action in asked),
    )
    broken = [gpu for gpu in gpus if gpu.remapped_rows_failure]
    if broken:
        return failed(
            name,
            f"{_cards(broken).capitalize()} should be returned: bad memory can no longer be "
            "replaced.",
            "Take the card out of use and show its vendor the output of `nvidia-smi -q`.",
            *details,
        )
    if details:
        troubled = sorted({gpu.index for gpu, _ in (*faults, *asked)})
        return warned(
            name,
            f"There were errors on card{'' if len(troubled) == 1 else 's'} {index_list(troubled)}.",
            "End what uses the card, then `sudo nvidia-smi --gpu-reset -i INDEX`: a reset replaces "
            "what is bad.",
            *details,
        )
    if all(_tells_nothing(gpu) for gpu in gpus):
        return unknown(name, "These cards do not count memory errors (no ECC).")
    return passed(name, "No uncorrected error, nothing to be replaced.")


def _tells_nothing(gpu: Gpu) -> bool:
    return (
        gpu.ecc_uncorrected_volatile is None
        and gpu.remapped_rows_pending is None
        and gpu.retired_pages_pending is None
    )


def reported_errors(case: Case) -> Result | None:
    """XIDs in the kernel's log since the machine started."""
    name = "reported errors"
    if not case.gpus and not case.slots:
        return None
    xids = read_xids(case.machine.path("/dev/kmsg"))
    if xids is None:
        return unknown(
            name,
            "The kernel's log, which holds them, may not be read by you.",
            "`sudo dmesg | grep -i xid`",
        )
    if not xids:
        return passed(name, "No XID in the kernel's log.")
    details = _told(xids, case)
    own = [xid for xid in xids if xid.number not in PROGRAM_XIDS]
    if not own:
        return passed(name, "Only errors that programs cause themselves.", *details)
    return warned(
        name,
        f"{len(own)} XID{'' if len(own) == 1 else 's'} of the cards themselves.",
        "Look the numbers up in NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors): some "
        "want a reset, some a new card.",
        *details,
    )


def _told(xids: Sequence[Xid], case: Case) -> tuple[str, ...]:
    """The newest of each number and card, a line each, the cards' own first."""
    newest: dict[tuple[str, int], Xid] = {}
    counts: dict[tuple[str, int], int] = {}
    for xid in xids:
        key = xid.slot, xid.number
        newest[key] = xid
        counts[key] = counts.get(key, 0) + 1
    now = case.machine.uptime()
    ordered = sorted(newest.values(), key=lambda xid: (xid.number in PROGRAM_XIDS, -xid.at))
    lines = []
    for xid in ordered[:_TOLD]:
        times = counts[xid.slot, xid.number]
        often = "" if times == 1 else f", {times} times"
        meaning = XID_MEANINGS.get(xid.number, LOOK_IT_UP)
        lines.append(
            f"{_card_at(xid.slot, case.gpus)}: XID {xid.number} {duration(now - xid.at)} ago"
            f"{often}: {meaning}"
        )
    if len(ordered) > _TOLD:
        lines.append(f"and {len(ordered) - _TOLD} kinds more")
    return tuple(lines)


def _card_at(slot: str, gpus: Sequence[Gpu]) -> str:
    for gpu in gpus:
        # NVML writes more zeros before it, and the function behind.
        if gpu.pci_bus_id is not None and slot in gpu.pci_bus_id.lower():
            return f"card {gpu.index}"
    return slot


def asleep(case: Case) -> Result | None:
    """Which cards the kernel has powered down."""
    sleeping = [gpu for gpu in case.gpus if gpu.status is CardStatus.ASLEEP]
    if not sleeping:
        return None
    return passed(
        "asleep",
        f"{_cards(sleeping).capitalize()}: powered down until a program wants to compute. gpumon "
        "does not wake them, and so knows little of them.",
    )
