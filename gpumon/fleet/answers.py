"""One answer of each host, within bounded time, for commands without a screen."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING

from gpumon.fleet.fleet import HostOrigin, HostStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.fleet.fleet import Fleet, FleetSnapshot, HostState

_LOOKUP_SECONDS = 1.5
"""How long after its first sample a host may look up what a driver does not know."""


def changes(fleet: Fleet, patience: float) -> Iterator[FleetSnapshot]:
    """The hosts now and after every change, until the time is over.

    Args:
        fleet: A fleet that was started.
        patience: Seconds; the last state is returned after them.
    """
    changed = Event()
    end = fleet.subscribe(changed.set)
    deadline = time.monotonic() + patience
    try:
        while True:
            changed.clear()
            yield fleet.latest()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            changed.wait(left)
    finally:
        end()


def answers(fleet: Fleet, patience: float) -> FleetSnapshot:
    """The hosts once each has answered or is down, or once the time is over.

    Args:
        fleet: A fleet that was started.
        patience: Seconds to wait at most.
    """
    for hosts in changes(fleet, patience):
        if all(is_settled(host) for host in hosts.hosts):
            break
    return hosts


def is_settled(host: HostState) -> bool:
    """Whether a host has answered completely, or is known not to answer.

    The first sample of a host comes before it has looked up where its processes run and which GPUs
    are reserved.
    """
    if host.status is HostStatus.DOWN:
        return True
    if host.snapshot is None or host.received_at is None:
        return False
    if host.origin is not HostOrigin.GPUMON or host.snapshot.trouble is not None:
        return True
    if host.received_at - host.since > _LOOKUP_SECONDS:
        return True
    return host.received_at > host.since and all(
        one.place is not None for one in host.snapshot.processes if one.visible
    )


def missing(host: HostState, patience: float) -> str:
    """Why there are no GPUs of a host, as a sentence; empty if there are.

    Args:
        host: The host.
        patience: How long it was waited for, in seconds.
    """
    if host.status is HostStatus.DOWN:
        return host.sentence
    if host.snapshot is None:
        return host.sentence or f"no answer within {patience:g}s"
    trouble = host.snapshot.trouble
    return "" if trouble is None else trouble.sentence.rstrip(".")
