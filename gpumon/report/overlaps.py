"""Notices where logs that name neither host nor UUID have a GPU at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.makers import is_same_name
from gpumon.recording.recording import RecordingError
from gpumon.text.formatting import memory_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.report.reading import Log
    from gpumon.report.samples import MergedSample, SteadyGpu

_LIKE_MEMORY = 0.9
"""Share of the size of a GPU's memory from which on another size may be of the same GPU."""


class _Model(NamedTuple):
    """What a row says of the model of its GPU."""

    name: str | None
    memory_total: float | None


class OverlapCheck:
    """Notices where logs that name neither host nor UUID overlap in time."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = logs
        self._log_of: dict[str, list[int]] = {}
        # That of the newest row; and the last one that two rows in a row have, as one row may be
        # damaged.
        self._newest: dict[tuple[str, int], _Model] = {}
        self._certain: dict[tuple[str, int], _Model] = {}

    def see(self, sample: MergedSample) -> None:
        """Look at the GPUs of a sample.

        Raises:
            RecordingError: One of them is certainly not the GPU that another log has.
        """
        here = sample.log
        for key, row in sample.gpus.items():
            state = row.state
            if state.uuid:
                continue
            model = _Model(state.name, state.memory_total)
            if self._newest.get((key, here)) == model:
                self._certain[key, here] = model
            self._newest[key, here] = model
            order = self._log_of.setdefault(key, [here])
            other = order[-1]
            if other == here:
                continue
            # The other log has rows between two of this one.
            if here in order:
                self._note_overlap(key, state, other, here)
            order[:] = [*(log for log in order if log != here), here]

    def _note_overlap(self, key: str, state: SteadyGpu, other: int, here: int) -> None:
        """Note that two logs have a GPU at one time.

        Raises:
            RecordingError: See ``see``.
        """
        numbers = sorted((other, here))
        first, second = (self._logs[log] for log in numbers)
        models = [self._certain[key, log] for log in numbers if (key, log) in self._certain]
        if len(models) == len(numbers) and _are_different(*models):
            raise RecordingError(
                f"{first.path} and {second.path} have different GPUs"
                f" ({', '.join(map(_model_name, models))}) under one {_key_name(state)} at the same"
                " time: report them one by one, or add uuid to the query."
            )
        second.damage_of(second.parts[-1].gpus).overlapping = first.parts[-1].gpus


def _are_different(one: _Model, other: _Model) -> bool:
    """Whether two rows cannot be of one GPU, whatever driver wrote them."""
    if one.name and other.name and not is_same_name(one.name, other.name):
        return True
    sizes = [model.memory_total for model in (one, other) if model.memory_total]
    # Newer drivers count the memory that they reserve.
    return len(sizes) > 1 and min(sizes) < _LIKE_MEMORY * max(sizes)


def _model_name(model: _Model) -> str:
    size = "" if model.memory_total is None else memory_size(round(model.memory_total))
    return f"{model.name or 'a GPU'} {size and f'with {size}'}".strip()


def _key_name(state: SteadyGpu) -> str:
    return "bus id" if state.pci_bus_id else "index"
