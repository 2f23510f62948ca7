"""The Slurm job of ``--job``."""

from __future__ import annotations

from msgspec import Struct

from gpumon.model.allocations import is_slurm_job

_PART_SIGNS = ("_", "+")

CHOSEN = "chosen job"
"""The key of what belongs to the job; all else has an empty key."""


class ChosenJob(Struct, frozen=True):
    """A Slurm job, or with the number of an array or a heterogeneous job all its parts."""

    name: str  # ``88123``, or a part of it: ``88123_4``, ``88123+1``

    @property
    def label(self) -> str:
        """A label, safe to print."""
        return f"slurm {self.name}"

    def group(self, *names: str | None) -> tuple[str, str]:
        """The key and the label of what belongs to a job of Slurm with these names, or to none."""
        return (CHOSEN, self.label) if any(map(self._has, names)) else ("", "")

    def _has(self, job: str | None) -> bool:
        if job is None or job == self.name:
            return job is not None
        return any(job.startswith(f"{self.name}{sign}") for sign in _PART_SIGNS)


def chosen_job(text: str) -> ChosenJob | None:
    """The job of a number, or of a part's name; ``None`` for any other text."""
    return ChosenJob(text) if is_slurm_job(text) else None
