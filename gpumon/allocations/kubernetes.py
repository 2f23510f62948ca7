"""What Kubernetes has given to the pods of this machine.

The kubelet is asked, over a socket that usually only root may open. It knows the devices of each
pod, but no user: a pod has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.allocations.grpc_call import call
from gpumon.allocations.placement import devices_with_processes
from gpumon.allocations.pod_devices import DeviceFinder
from gpumon.allocations.pod_resources import pods_of
from gpumon.allocations.polling import Poll
from gpumon.allocations.scheduler import unknown
from gpumon.model.allocations import KUBERNETES, Allocation
from gpumon.system.system import THIS_SYSTEM

if TYPE_CHECKING:
    from gpumon.allocations.pod_resources import Pod
    from gpumon.model.snapshot import Snapshot
    from gpumon.system.system import Clock

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
        self._path = path
        self._pods: Poll[list[Pod]] = Poll(self._ask, _ASK_SECONDS, clock)

    def _ask(self, patience: float) -> list[Pod] | None:
        message = call(self._path, _METHOD, min(patience, _PATIENCE))
        return None if message is None else pods_of(message)

    def find(self, snapshot: Snapshot, patience: float) -> tuple[tuple[Allocation, ...], float]:
        """See ``Scheduler.find``."""
        pause = self._pods.look(patience)
        finder = DeviceFinder(snapshot.gpus)
        found = [_allocation(pod, finder, snapshot) for pod in self._pods.answer or ()]
        if self._pods.age >= _OLD_SECONDS:
            found.append(unknown(KUBERNETES))
        return tuple(each for each in found if each is not None), pause


def _allocation(pod: Pod, finder: DeviceFinder, snapshot: Snapshot) -> Allocation | None:
    """The GPUs of a pod; ``None`` if it has none."""
    devices = [found for device in pod.devices if (found := finder.find(device)) is not None]
    if not devices:
        return None
    uuids = dict.fromkeys(uuid for each in devices for uuid in each.uuids or ())
    unplaced = [each for each in devices if each.uuids is None]
    job = f"{pod.namespace}/{pod.name}"
    if unplaced:
        seen = devices_with_processes(snapshot, [(KUBERNETES, job)])
        placed = [uuid for uuid in seen if uuid not in uuids][: len(unplaced)]
        uuids |= dict.fromkeys(placed)
        del unplaced[: len(placed)]
    # Several shares may be of the same GPU.
    is_counted = not any(each.is_share for each in unplaced)
    return Allocation(
        KUBERNETES,
        job,
        None,
        tuple(uuids),
        len(unplaced) if is_counted else None,
        is_share=all(each.is_share for each in devices),
    )
