"""Which processes, and which jobs of schedulers, the lists show."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.filters.terms import Filter, FilterContext
    from gpumon.findings.groups import AllocatedJob
    from gpumon.model.processes import GpuProcess
    from gpumon.model.snapshot import Gpu


class ProcessFilter(Struct, frozen=True):
    """Selects the processes that are shown; all conditions apply together."""

    user: str | None = None  # The user from the command line.
    mine: str | None = None  # The current user's name, to show only their processes.
    # The user whose processes are shown; never together with ``mine``.
    only_user: str | None = None
    # ``C`` shows only compute processes, ``G`` only graphics processes.
    kind: str | None = None
    filter: Filter | None = None  # The filter that was typed.
    gpu: str | None = None  # UUID of the GPU whose processes are shown.

    def words(self, processes: Sequence[GpuProcess]) -> list[str]:
        """Describe each condition briefly, except the GPU, for the rule above the table."""
        words = []
        if self.user is not None:
            none = all(process.user != self.user for process in processes)
            words.append(f"of {self.user}{', who has none' if none else ''}")
        if self.mine is not None:
            words.append("only mine")
        if self.only_user is not None:
            words.append(f"only {self.only_user}")
        if self.kind is not None:
            words.append("only compute" if self.kind == "C" else "only graphics")
        if self.filter is not None and self.filter.text:
            words.append(f"/{self.filter.text}")
        return words

    def apply(
        self, processes: Sequence[GpuProcess], context: FilterContext | None
    ) -> list[GpuProcess]:
        """Return the processes that meet all conditions; a filter needs the context."""
        return [
            process
            for process in processes
            if (self.user is None or process.user == self.user)
            and (self.mine is None or process.user == self.mine)
            and (self.only_user is None or process.user == self.only_user)
            and (self.kind is None or self._is_kind(process))
            and (self.gpu is None or any(use.gpu_uuid == self.gpu for use in process.uses))
            and (self.filter is None or context is None or self.filter.matches(process, context))
        ]

    def apply_to_allocated(
        self, jobs: Sequence[AllocatedJob], gpus: Sequence[Gpu], context: FilterContext | None
    ) -> list[AllocatedJob]:
        """Return the jobs of schedulers of which a process would meet all conditions."""
        return [job for job in jobs if self.apply((job.stand_in(gpus),), context)]

    def _is_kind(self, process: GpuProcess) -> bool:
        # MPS clients (type M) compute.
        kinds = process.type.split("+")
        return "G" in kinds if self.kind == "G" else bool({"C", "M"} & set(kinds))
