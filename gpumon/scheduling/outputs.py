"""Writes the result of a selection: for a shell, for a program, and the reasons for the user."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import msgspec

from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.makers import maker_of
from gpumon.text.formatting import cell_width, fit, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.makers.visible_devices import VisibleDevices
    from gpumon.model.snapshot import Gpu, ReservationHolder
    from gpumon.scheduling.eligibility import Candidate, Eligibility
    from gpumon.scheduling.ranking import GpuChoice

SCHEMA = "gpumon.select/1"
_GAP = "  "
_LEAST_ROOM = 24
"""Below this many cells lines are left to the terminal to wrap."""


def as_variables(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that make a program see just these GPUs, the main one first.

    Args:
        candidates: GPUs of one maker.
        gpus: All GPUs of the machine.
    """
    uuids = [one.uuid for one in candidates]
    return _visible_devices(candidates).assignments(uuids, gpus)


def _visible_devices(candidates: Sequence[Candidate]) -> VisibleDevices:
    return visible_devices_of(maker_of(candidates[0].gpu.name))


def _indices(candidates: Sequence[Candidate]) -> list[str]:
    return [one.uuid if one.mig is not None else str(one.gpu.index) for one in candidates]


def as_uuid(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> str:
    """The value of the main variable: UUIDs, in any device order, where the maker has them."""
    return next(iter(as_variables(candidates, gpus).values()))


def as_index(candidates: Sequence[Candidate], _: Sequence[Gpu]) -> str:
    """Indices as on the screen; a MIG device has no index for CUDA, and stays a UUID."""
    return ",".join(_indices(candidates))


def as_env(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> str:
    """Variable assignments; for CUDA those that make the indices valid there too."""
    uuids = [one.uuid for one in candidates]
    variables = _visible_devices(candidates).assignments_by_index(_indices(candidates), uuids, gpus)
    return "\n".join(f"{name}={value}" for name, value in variables.items())


def doubt_of_selection(
    candidates: Sequence[Candidate], gpus: Sequence[Gpu], *, by_index: bool
) -> str:
    """A sentence on why a program may see other GPUs than the chosen ones; usually empty."""
    uuids = [one.uuid for one in candidates]
    indices = _indices(candidates) if by_index else None
    return _visible_devices(candidates).doubt(uuids, gpus, indices)


def json_text(told: dict[str, object]) -> str:
    """An object as JSON with line breaks."""
    return msgspec.json.format(msgspec.json.encode(told), indent=2).decode()


def selection_json(choice: GpuChoice | None, verdicts: Sequence[Eligibility]) -> dict[str, object]:
    """Everything known of a choice, as an object to encode."""
    chosen = () if choice is None else choice.candidates
    gpus = list({one.candidate.gpu.uuid: one.candidate.gpu for one in verdicts}.values())
    variables = as_variables(chosen, gpus) if chosen else {}
    return {
        "schema": SCHEMA,
        "cuda_visible_devices": variables.get("CUDA_VISIBLE_DEVICES"),
        "environment": variables or None,
        "reason": None if choice is None else choice.reason,
        "chosen": [_described(one) for one in verdicts if one.candidate in chosen],
        "fitting": [
            _described(one)
            for one in verdicts
            if one.refusal is None and one.candidate not in chosen
        ],
        "refused": [
            {
                **_described(one),
                "kind": one.refusal.kind,
                "reason": one.refusal.sentence,
            }
            for one in verdicts
            if one.refusal is not None
        ],
    }


def _described(verdict: Eligibility) -> dict[str, object]:
    candidate = verdict.candidate
    gpu = candidate.gpu
    return {
        "uuid": candidate.uuid,
        "gpu_uuid": gpu.uuid,
        "index": gpu.index,
        "mig_index": None if candidate.mig is None else candidate.mig.index,
        "name": None if gpu.name is None else printable(gpu.name),
        "memory_free_bytes": verdict.free,
        "memory_total_bytes": candidate.memory_total,
        "utilization_gpu_percent": gpu.utilization_gpu,
        "temperature_gpu_celsius": gpu.temperature_gpu,
        "processes": len(verdict.others),
        "reserved": None if verdict.holder is None else _reserved(verdict.holder),
    }


def _reserved(holder: ReservationHolder) -> dict[str, object]:
    return {
        "user": holder.user,
        "pid": holder.pid,
        "since": holder.since,
        "command": printable(holder.command),
    }


def table(
    verdicts: Sequence[Eligibility], choice: GpuChoice | None = None, columns: int | None = None
) -> str:
    """One line per GPU: its type, and whether it is eligible or chosen, or why not.

    The model is omitted if all GPUs have the same one.

    Args:
        verdicts: The eligibility of each GPU.
        choice: The choice.
        columns: Line width; ``None`` does not wrap.
    """
    chosen = () if choice is None else choice.candidates
    several = len({one.candidate.gpu.name for one in verdicts}) > 1
    heads = [_head(one.candidate, with_model=several) for one in verdicts]
    widths = [
        max((cell_width(cell) for cell in cells), default=0) for cells in zip(*heads, strict=True)
    ]
    lines = []
    for verdict, head in zip(verdicts, heads, strict=True):
        begun = "".join(_GAP + fit(*cell) for cell in zip(head, widths, strict=True)) + _GAP
        told = _told(verdict, chosen=verdict.candidate in chosen)
        room = None if columns is None else columns - cell_width(begun)
        lines.append(begun + ("\n" + " " * cell_width(begun)).join(_broken(told, room)))
    return "".join(f"{line}\n" for line in lines)


def _head(candidate: Candidate, *, with_model: bool) -> list[str]:
    model = [printable(candidate.gpu.name or "unknown model")] if with_model else []
    return [candidate.label, *model]


def _told(verdict: Eligibility, *, chosen: bool) -> str:
    if verdict.refusal is not None:
        return verdict.refusal.sentence
    return "chosen" if chosen else "fits"


def _broken(sentence: str, room: int | None) -> list[str]:
    """A sentence wrapped to lines, if there is enough room for words."""
    if room is None or room < _LEAST_ROOM:
        return [sentence]
    return textwrap.wrap(sentence, room, break_long_words=False)
