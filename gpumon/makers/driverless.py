"""What is the same of every source that calls no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.makers.source import Call
    from gpumon.model.snapshot import Snapshot


class DriverlessSource:
    """Of a ``Source``: no call can hang, and nothing is known of the time before."""

    driver_seconds = 0.0
    current_call: Call | None = None

    def give_up(self, call: Call, /) -> bool:  # noqa: ARG002 - the interface has it
        """See ``Source.give_up``."""
        return False

    def past(self) -> Iterable[Snapshot]:
        """See ``Source.past``."""
        return ()
