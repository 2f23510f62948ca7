"""What Kubernetes has given to the pods of this machine.

The kubelet is asked, over a socket that mostly root alone may open. It knows the devices of each
pod, but no user: a pod has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.allocations.backoff import Backoff
from gpumon.allocations.grpc_call import call
from gpumon.allocations.pod_devices import DeviceFinder
from gpumon.allocations.pod_resources import pods_of
from gpumon.allocations.scheduler import unknown
from gpumon.model.allocations import Allocation
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from gpumon.allocations.pod_resources import Pod
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

SCHEDULER = "kubernetes"
_METHOD = "v1.PodResourcesLister/List"
_ASK_SECONDS = 5.0
"""Seconds between two questions, which the kubelet answers from memory, up to 100 in a second."""
_PATIENCE = 2.0
"""Seconds; it answers in milliseconds unless it hangs."""
_OLD_SECONDS = 60.0
"""Age of an answer from which on pods may have got GPUs since. A kubelet that starts again is away
for less, and gives nothing away until then."""


class KubernetesAllocations:
    """A ``Scheduler``.

    Args:
        path: The kubelet's socket for pod resources.
        clock: The clock.
    """

    def __init__(self, path: str, clock: Clock = THIS_SYSTEM.clock) -> None:
        self._path, self._clock = path, clock
        self._backoff = Backoff()
        self._due = 0.0
        self._pods: list[Pod] | None = None
        self._answered_at = 0.0

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        """See ``Scheduler.find``."""
        if self._clock.monotonic() >= self._due:
            message = call(self._path, _METHOD, min(patience, _PATIENCE))
            pods = None if message is None else pods_of(message)
            now = self._clock.monotonic()
            if pods is None:
                self._backoff.failed(now)
                self._due = self._backoff.until
            else:
                self._backoff.answered()
                self._pods, self._answered_at = pods, now
                self._due = now + _ASK_SECONDS
        now = self._clock.monotonic()
        return self._allocations(snapshot, now), max(0.1, self._due - now)

    def _allocations(self, snapshot: Snapshot, now: float) -> tuple[Allocation, ...]:
        if self._pods is None:
            return (unknown(SCHEDULER),)
        finder = DeviceFinder(snapshot.gpus)
        found = [_allocation(pod, finder) for pod in self._pods]
        known = tuple(each for each in found if each is not None)
        return known if now - self._answered_at < _OLD_SECONDS else (*known, unknown(SCHEDULER))


def _allocation(pod: Pod, finder: DeviceFinder) -> Allocation | None:
    """The GPUs of a pod; ``None`` if it has none."""
    devices = [found for device in pod.devices if (found := finder.find(device)) is not None]
    if not devices:
        return None
    uuids = dict.fromkeys(uuid for each in devices for uuid in each.uuids or ())
    unplaced = [each for each in devices if each.uuids is None]
    # Several shares may be of one GPU.
    is_counted = not any(each.is_share for each in unplaced)
    return Allocation(
        SCHEDULER,
        f"{pod.namespace}/{pod.name}",
        None,
        tuple(uuids),
        len(unplaced) if is_counted else None,
        is_share=all(each.is_share for each in devices),
    )
