"""The processes of a host that Prometheus knows: it knows none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.process_host import RecordedHost, Refusal, Refused

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessHandle, Target


class NoProcesses(RecordedHost):
    """See ``ProcessHost``: nothing can be looked up, and no signal is sent."""

    def __init__(self, name: str) -> None:
        self._name = name

    def open_handle(self, target: Target) -> ProcessHandle:
        """See ``ProcessHost.open_handle``.

        Raises:
            Refused: Always.
        """
        raise Refused(
            Refusal.READ_ONLY,
            f"{target.id.pid} is on {self._name}, which is known from Prometheus only: nothing can"
            " be sent there; gpumon --hosts can.",
        )
