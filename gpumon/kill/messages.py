"""Messages about a process that was to be terminated, one sentence each."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from gpumon.host.refusals import signal_name, unreaped
from gpumon.model.process_states import STOPPED, TRACED, UNINTERRUPTIBLE, ZOMBIE
from gpumon.text.formatting import duration

if TYPE_CHECKING:
    from gpumon.host.process_host import ProcessStatus
    from gpumon.model.processes import ProcessId


def why_it_lives(
    process: ProcessId, standing: ProcessStatus | None, number: int, patience_over: float | None
) -> str:
    """Why a process has not exited, as far as known.

    Args:
        process: The process.
        standing: Its status.
        number: The last signal sent to it.
        patience_over: Seconds since then, if that is longer than it should need.
    """
    pid, name = process.pid, signal_name(number)
    state = "" if standing is None else standing.state
    if standing is not None and state == UNINTERRUPTIBLE:
        where = f" ({standing.wait_channel})" if standing.wait_channel else ""
        return f"{pid} waits inside the kernel{where}: no signal reaches it until that ends"
    if number != signal.SIGKILL and state == STOPPED:
        return (
            f"{pid} is stopped: {name} acts once it is continued (kill -CONT {pid}), KILL at once"
        )
    if number != signal.SIGKILL and state == TRACED:
        return f"{pid} is held by a debugger: {name} acts once that lets it go on, KILL at once"
    if patience_over is None:
        return ""
    since = duration(patience_over)
    if number == signal.SIGKILL:
        return f"{pid} was killed {since} ago, and the kernel is still taking it down"
    if state == ZOMBIE:
        return f"{pid} goes on without its main thread {since} after {name}"
    return f"{pid} goes on {since} after {name}: it ignores that, or is still tidying up"


def why_it_is_listed(process: ProcessId, standing: ProcessStatus | None) -> str:
    """Why an exited process is still in the process list; otherwise empty."""
    listed = unreaped(standing)
    return f"{process.pid} has ended{listed}" if listed else ""
