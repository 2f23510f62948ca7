"""What is known of a host over time, and whether its values are current."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpumon.fleet.fleet import HostOrigin, HostState, HostStatus, without_values
from gpumon.model.snapshot import GpuStatus
from gpumon.prometheus.gpus import snapshot, states

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.prometheus.readings import HostReading

Target = tuple[str, str]
"""A job and an instance."""

_LATE_PERIODS, _LATE_SECONDS = 3, 90.0
"""dcgm-exporter collects every 30 s by default, and charts scrape every 15 s to 60 s."""
_PERIODS_KEPT = 8
_ABSENT_SECONDS = 3600.0
"""A GPU without values for so long was taken out, rather than fails."""
_DOWN = "Prometheus does not reach its exporter (up is 0)"
_GONE = "Prometheus no longer scrapes it: the target is gone"
_OLD = "Prometheus has no newer values of it"
_NO_GPU = "its exporter answers Prometheus, but tells no GPU"


class KnownHost:
    """A host. Only the polling thread changes it; any may read ``state``."""

    def __init__(self, name: str, label: str, text: str, targets: Collection[Target] = ()) -> None:
        self.name = name  # safe to print
        self.label = label  # that names it
        self.text = text  # of that label
        self.targets = frozenset(targets)  # of Prometheus, that its series come from
        self.state = HostState(
            name, HostStatus.CONNECTING, time.time(), origin=HostOrigin.PROMETHEUS
        )
        # When its newest values were scraped, by the clock of Prometheus.
        self.sampled_at: float | None = None
        self._taken_at: float | None = None
        self.is_whole = False  # whether the newest snapshot has every metric
        self._periods: list[float] = []
        self._gpus: dict[str, Gpu] = {}

    @property
    def texts(self) -> Collection[str]:
        """The values of its label: a single value, or the instances of all its exporters."""
        if self.label != "instance":
            return (self.text,)
        return {instance for _, instance in self.targets} or (self.text,)

    @property
    def period(self) -> float | None:
        """Seconds between two scrapes, as far as they were seen; else ``None``."""
        return min(self._periods, default=None)

    def take(
        self,
        reading: HostReading,
        sampled_at: float,
        shift: float,
        up: Mapping[Target, bool],
        *,
        whole: bool,
    ) -> None:
        """Take what was read of it, and judge it.

        Args:
            reading: What was read.
            sampled_at: When its values were scraped, by the clock of Prometheus.
            shift: Seconds to add to times of Prometheus for this machine's clock.
            up: Whether targets answer Prometheus.
            whole: Whether every metric was asked for. What has fewer does not take the place of
                what has all of the same scrape.
        """
        if reading.targets:
            self.targets = frozenset(reading.targets)
        before, self.sampled_at = self.sampled_at, sampled_at
        if before is not None and sampled_at > before:
            self._periods = [*self._periods, sampled_at - before][-_PERIODS_KEPT:]
        state = self.state
        if self._taken_at != sampled_at or (whole and not self.is_whole):
            self._taken_at, self.is_whole = sampled_at, whole
            state = replace(
                state,
                snapshot=self._with_absent(
                    snapshot(self.name, reading, sampled_at + shift, whole=whole)
                ),
                received_at=time.time(),
                states=states(reading),
                owners=reading.owners(),
            )
        # In one step: others read the state at any time.
        self.state = self._judged(state, up, shift, "")

    def _with_absent(self, found: Snapshot) -> Snapshot:
        """The snapshot with the GPUs that had values before: exporters leave out a GPU that fails.

        Another GPU with the same index takes its place. If all GPUs are others, so is the machine.
        """
        if not found.gpus:
            return found
        listed = {gpu.uuid: gpu for gpu in found.gpus}
        indices = {gpu.index for gpu in found.gpus}
        before = self._gpus if self._gpus.keys() & listed.keys() else {}
        absent = {
            uuid: gpu
            for uuid, gpu in before.items()
            if uuid not in listed
            and gpu.index not in indices
            and found.time - (gpu.sampled_at or found.time) < _ABSENT_SECONDS
        }
        self._gpus = listed | absent
        failing = [
            replace(without_values(gpu, GpuStatus.NO_ANSWER), status_since=gpu.sampled_at)
            for gpu in absent.values()
        ]
        gpus = sorted((*found.gpus, *failing), key=lambda gpu: gpu.index)
        return replace(found, gpus=tuple(gpus))

    def judge(self, up: Mapping[Target, bool], shift: float, trouble: str) -> None:
        """Judge whether its values are current; for ``up`` and ``shift`` see ``take``.

        ``trouble`` says why Prometheus does not answer; it is empty if it does.
        """
        self.state = self._judged(self.state, up, shift, trouble)

    def _judged(
        self, before: HostState, up: Mapping[Target, bool], shift: float, trouble: str
    ) -> HostState:
        now = time.time()
        at = None if self.sampled_at is None else min(self.sampled_at + shift, now)
        late = max(_LATE_PERIODS * (self.period or 0.0), _LATE_SECONDS)
        is_late = at is None or now - at > late
        if not trouble:
            status, sentence = self._status(up, is_late=is_late)
        elif before.status is HostStatus.LIVE and is_late:
            status, sentence = HostStatus.SILENT, trouble
        else:
            return before
        if (status, sentence) == (before.status, before.sentence):
            return before
        since = now if at is None or status is HostStatus.LIVE else at
        if status is before.status:
            since = before.since
        return replace(before, status=status, sentence=sentence, since=since)

    def _status(self, up: Mapping[Target, bool], *, is_late: bool) -> tuple[HostStatus, str]:
        known = [up[target] for target in self.targets if target in up]
        if known and not any(known):
            return HostStatus.DOWN, _DOWN
        if not is_late:
            return HostStatus.LIVE, ""
        if known:
            return HostStatus.SILENT, _NO_GPU
        return HostStatus.DOWN, _GONE if up and self.targets else _OLD
