"""What follows one alert over all its subjects, and what its kinds share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from gpumon.alerts.memory import RememberedProcess
from gpumon.alerts.sentences import told_command

if TYPE_CHECKING:
    from gpumon.alerts.alert import Alert
    from gpumon.alerts.look import Look
    from gpumon.alerts.memory import RememberedAlert
    from gpumon.alerts.notice import Notice
    from gpumon.model.processes import GpuProcess

MOST_SUBJECTS = 2000
"""How many subjects of one alert are followed; further ones are not told."""


class Watcher(Protocol):
    """Follows one alert.

    Attributes:
        alert: The alert.
    """

    alert: Alert

    def check(self, look: Look) -> list[Notice]:
        """What is to be told now."""
        ...

    def shift(self, seconds: float) -> None:
        """Move all times into the past, when the clock was set back."""
        ...

    def remember(self) -> RememberedAlert:
        """What must be known after a restart."""
        ...

    def recall(self, memory: RememberedAlert, *, fresh: bool) -> None:
        """Take what was remembered.

        Args:
            memory: That.
            fresh: Whether it is so new that what is not in it did not hold then.
        """
        ...


def remembered(alert: Alert, process: GpuProcess, since: float) -> RememberedProcess:
    """What is needed to tell an end."""
    by_index = sorted(process.uses, key=lambda use: use.gpu_index)
    uses = {use.gpu_uuid: use.gpu_index for use in by_index}
    return RememberedProcess(
        process.id.pid,
        process.id.start_time,
        process.name,
        process.user,
        tuple(uses.values()),
        tuple(uses),
        since,
        told_command(alert, process),
    )


def copied(processes: dict[str, RememberedProcess]) -> dict[str, RememberedProcess]:
    """The processes as they are now, for another thread."""
    return {key: replace(process) for key, process in processes.items()}
