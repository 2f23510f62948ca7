"""What was asked for when somebody waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpumon.scheduling.requirements import Requirements


class WaitOptions(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        kind: ``free``, ``idle`` or ``cool``.
        requirements: Of the cards.
        pids: Processes to wait for in place of cards; empty for cards.
        timeout: After how many seconds to give up; ``None`` is never.
        verbose: Whether to say which cards these are and why.
        bell: Whether to ring when it has come.
        notify: Whether to have the desktop notify.
        command: What the shell is given to run then; ``None`` is nothing.
        lock_dir: Where the locks are; ``None`` is the usual place.
        past: A log that knows the past; ``None`` is none.
    """

    kind: str
    requirements: Requirements
    pids: tuple[int, ...] = ()
    timeout: float | None = None
    verbose: bool = False
    bell: bool = False
    notify: bool = False
    command: str | None = None
    lock_dir: str | None = None
    past: str | None = None
