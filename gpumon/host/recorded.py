"""The processes of a log, which cannot be inspected or signalled."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.host.process_host import Refusal, Refused

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.host.process_host import Details, ProcessHandle, RelatedProcess, Target
    from gpumon.model.processes import GpuProcess, HolderScan, ProcessId, Workload
    from gpumon.model.snapshot import Snapshot


class RecordedHost:
    """See ``ProcessHost``. The log holds everything that is known of a process."""

    readonly = True
    uid = None
    """Unknown: the log may be of another machine with other UIDs."""

    @property
    def user(self) -> str:
        """Name of the current user: names usually mean the same person on several machines."""
        from gpumon.system.users import user_name

        return user_name(os.geteuid())

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:  # noqa: ARG002 - see ProcessHost
        """Empty: the places are in the log."""
        return {}

    def scan(self, snapshot: Snapshot) -> HolderScan | None:  # noqa: ARG002 - see ProcessHost
        """Always ``None``."""
        return None

    def relatives(self, roots: Iterable[ProcessId]) -> tuple[RelatedProcess, ...]:  # noqa: ARG002 - see ProcessHost
        """Always empty."""
        return ()

    def details(self, process: ProcessId) -> Details | None:  # noqa: ARG002 - see ProcessHost
        """Always ``None``."""
        return None

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is a process of a log: nothing is sent from a replay.",
        )

    def wait(self, handles: Sequence[ProcessHandle], seconds: float) -> None:  # noqa: ARG002 - see ProcessHost
        """Return at once: there are no handles."""
        return
