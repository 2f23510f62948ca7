"""``gpumon select``: finds free GPUs for a shell or a program; and the texts of a selection."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

import msgspec

from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.makers import maker_of
from gpumon.sampling.gpu_sampler import GpuSampler
from gpumon.scheduling.choose import Chooser
from gpumon.scheduling.locks import Locks
from gpumon.scheduling.waiting import GpuWait
from gpumon.text.formatting import cell_width, duration, fit, printable
from gpumon.text.status_line import StatusLine, columns, tell, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpumon.allocations import Allocations
    from gpumon.makers.source import Source
    from gpumon.makers.visible_devices import VisibleDevices
    from gpumon.model.snapshot import Gpu, ReservationHolder
    from gpumon.model.topology import Links
    from gpumon.scheduling.eligibility import Candidate, Eligibility
    from gpumon.scheduling.ranking import GpuChoice
    from gpumon.scheduling.requirements import Requirements

SCHEMA = "gpumon.select/1"
_GAP = "  "
_LEAST_ROOM = 24
"""Below this many cells lines are left to the terminal to wrap."""


def select(
    source: Source,  # of all GPUs
    requirements: Requirements,
    stream: TextIO,
    *,
    form: str = "uuid",  # or ``index``, ``env``, ``json``
    verbose: bool = False,  # whether to explain the choice
    lock_dir: str | None = None,  # ``None`` is the default folder
    past: str | None = None,  # a log of the past
    links: Callable[[], Links] | None = None,  # called if several GPUs are wanted
    allocations: Allocations | None = None,  # what schedulers have given away here
) -> int:
    """Print the best eligible GPUs, or on standard error why each GPU is not eligible.

    Returns:
        The exit status: 0, or 1 if too few are eligible.

    Raises:
        SourceError: There are no GPUs.
        RecordingError: The log of the past cannot be read.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` cannot be resolved.
        OSError: Writing to the stream failed.
    """
    locks = Locks(lock_dir, os.environ, make=False)
    chooser = Chooser(requirements, os.environ, locks, links, past, allocations)
    with GpuSampler(source) as sampler, StatusLine(sys.stderr) as status_line:
        waiting = _ObservingWait(sampler, chooser, status_line)
        result = waiting.result()
    choice, verdicts = waiting.choice, waiting.verdicts
    if locks.trouble:
        tell(f"only reservations by your own programs are known: {locks.trouble}")
    if form == "json":
        stream.write(json_text(selection_json(choice, verdicts)) + "\n")
    if choice is None:
        tell(waiting.refusal)
        write(table(verdicts, columns=columns()))
        return result
    chosen, gpus = choice.candidates, waiting.gpus
    if form != "json":
        stream.write(_WRITERS[form](chosen, gpus) + "\n")
    stream.flush()
    if verbose:
        tell(choice.reason)
        write(table(verdicts, choice, columns()))
    tell(doubt_of_selection(chosen, gpus, by_index=form in {"index", "env"}))
    if requirements.mig and len(chosen) > 1:
        tell("CUDA gives a program the first of several MIG devices alone: hand them out singly.")
    return 0


class _ObservingWait(GpuWait):
    """Waits for no GPU, but observes them for the required time."""

    pace = (0.5, 0.5)

    def __init__(self, sampler: GpuSampler, chooser: Chooser, status_line: StatusLine) -> None:
        super().__init__(sampler, chooser)
        self._status_line = status_line

    def show(self) -> None:
        """See ``GpuWait``."""
        if self.verdicts:
            left = duration(self.chooser.left())
            fitting = sum(map(self.chooser.may_still_fit, self.verdicts))
            self._status_line.show(
                [f"○ observing the GPUs, {left} left", f"{fitting} stable so far"]
            )


def as_variables(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that make a program see just these of all GPUs, the main variable first.

    The candidates are of the same maker.
    """
    uuids = [candidate.uuid for candidate in candidates]
    return _visible_devices(candidates).assignments(uuids, gpus)


def _visible_devices(candidates: Sequence[Candidate]) -> VisibleDevices:
    return visible_devices_of(maker_of(candidates[0].gpu.name))


def _indices(candidates: Sequence[Candidate]) -> list[str]:
    return [
        candidate.uuid if candidate.mig is not None else str(candidate.gpu.index)
        for candidate in candidates
    ]


def as_uuid(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> str:
    """The value of the main variable: UUIDs, in any device order, where the maker has them."""
    return next(iter(as_variables(candidates, gpus).values()))


def as_index(candidates: Sequence[Candidate], _: Sequence[Gpu]) -> str:
    """Indices as on the screen; a MIG device has no index for CUDA, and stays a UUID."""
    return ",".join(_indices(candidates))


def as_env(candidates: Sequence[Candidate], gpus: Sequence[Gpu]) -> str:
    """Variable assignments; for CUDA those that make the indices valid there too."""
    uuids = [candidate.uuid for candidate in candidates]
    variables = _visible_devices(candidates).assignments_by_index(_indices(candidates), uuids, gpus)
    return "\n".join(f"{name}={value}" for name, value in variables.items())


_WRITERS: dict[str, Callable[[Sequence[Candidate], Sequence[Gpu]], str]] = {
    "uuid": as_uuid,
    "index": as_index,
    "env": as_env,
}


def doubt_of_selection(
    candidates: Sequence[Candidate], gpus: Sequence[Gpu], *, by_index: bool
) -> str:
    """A sentence on why a program may see other GPUs than the chosen ones; usually empty."""
    uuids = [candidate.uuid for candidate in candidates]
    indices = _indices(candidates) if by_index else None
    return _visible_devices(candidates).doubt(uuids, gpus, indices)


def json_text(document: dict[str, object]) -> str:
    """An object as JSON with line breaks."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def selection_json(choice: GpuChoice | None, verdicts: Sequence[Eligibility]) -> dict[str, object]:
    """Everything known of a choice, as an object to encode."""
    chosen = () if choice is None else choice.candidates
    gpus = list(
        {verdict.candidate.gpu.uuid: verdict.candidate.gpu for verdict in verdicts}.values()
    )
    variables = as_variables(chosen, gpus) if chosen else {}
    return {
        "schema": SCHEMA,
        "cuda_visible_devices": variables.get("CUDA_VISIBLE_DEVICES"),
        "environment": variables or None,
        "reason": None if choice is None else choice.reason,
        "chosen": [_described(verdict) for verdict in verdicts if verdict.candidate in chosen],
        "fitting": [
            _described(verdict)
            for verdict in verdicts
            if verdict.fits and verdict.candidate not in chosen
        ],
        "refused": [
            {
                **_described(verdict),
                "kind": verdict.refusal.kind,
                "reason": verdict.refusal.sentence,
            }
            for verdict in verdicts
            if verdict.refusal is not None
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
    """One line per GPU: its model, and whether it is eligible or chosen, or why not.

    The model is omitted if all GPUs have the same. ``None`` columns do not wrap.
    """
    chosen = () if choice is None else choice.candidates
    several = len({verdict.candidate.gpu.name for verdict in verdicts}) > 1
    heads = [_head(verdict.candidate, with_model=several) for verdict in verdicts]
    widths = [
        max((cell_width(cell) for cell in cells), default=0) for cells in zip(*heads, strict=True)
    ]
    lines = []
    for verdict, head in zip(verdicts, heads, strict=True):
        begun = "".join(_GAP + fit(*cell) for cell in zip(head, widths, strict=True)) + _GAP
        sentence = _outcome(verdict, chosen=verdict.candidate in chosen)
        room = None if columns is None else columns - cell_width(begun)
        lines.append(begun + ("\n" + " " * cell_width(begun)).join(_wrapped(sentence, room)))
    return "".join(f"{line}\n" for line in lines)


def _head(candidate: Candidate, *, with_model: bool) -> list[str]:
    model = [printable(candidate.gpu.name or "unknown model")] if with_model else []
    return [candidate.label, *model]


def _outcome(verdict: Eligibility, *, chosen: bool) -> str:
    if verdict.refusal is not None:
        return verdict.refusal.sentence
    return "chosen" if chosen else "fits"


def _wrapped(sentence: str, room: int | None) -> list[str]:
    """A sentence wrapped to lines, if there is enough room for words."""
    if room is None or room < _LEAST_ROOM:
        return [sentence]
    return textwrap.wrap(sentence, room, break_long_words=False)
