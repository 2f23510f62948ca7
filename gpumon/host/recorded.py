"""The processes of a log: they are no more, or are somebody else's, and nothing is done to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.host import Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.host import Details, ProcessHandle, RelatedProcess, Target
    from gpumon.model.snapshot import GpuProcess, HolderScan, Place, ProcessId, Snapshot


class RecordedHost:
    """See ``gpumon.host.ProcessHost``. All that is known of a process stands in its log."""

    readonly = True

    @property
    def uid(self) -> None:
        """The log may be of another machine, where numbers mean other people."""
        return

    @property
    def user(self) -> str:
        """Names mostly mean the same people on all machines of one place."""
        from gpumon.system.users import user_name

        return user_name(os.geteuid())

    def places(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Place]:  # noqa: ARG002 - see ProcessHost
        """Nothing besides the log."""
        return {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:  # noqa: ARG002 - see ProcessHost
        """Nobody can look any more."""
        return None

    def families(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:  # noqa: ARG002 - see ProcessHost
        """Nobody can look any more."""
        return ()

    def details(self, process: ProcessId) -> Details | None:  # noqa: ARG002 - see ProcessHost
        """Nobody can look any more."""
        return None

    def grip(self, target: Target) -> ProcessHandle:
        """Refuse: the number may be anybody's by now.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is a process of a log: nothing is sent from a replay.",
        )

    def wait(self, grips: Sequence[ProcessHandle], seconds: float) -> None:  # noqa: ARG002 - see ProcessHost
        """Nobody is held."""
        return
