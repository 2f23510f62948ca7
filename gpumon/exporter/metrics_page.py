"""The page that Prometheus scrapes, rendered once per sample.

Besides the metrics of one snapshot (``gpumon.export.as_prometheus``) it has what only a history
has: the state of each GPU, and its XIDs. Old values are withheld, so that a driver that hangs
does not look like GPUs that do not change.
"""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gpumon.export.as_prometheus import (
    ACCIDENT_LAST_SEEN,
    DRIVER_UP,
    GPU_LABELS,
    OOM_KILL_LAST_SEEN,
    STATE,
    XID_LAST_SEEN,
    as_text,
    families,
    gauge,
    gpu_labels,
)
from gpumon.exporter.job_metrics import job_families, job_uses, names_by_memory
from gpumon.exporter.label_limits import LabelLimits
from gpumon.findings import RULES, conditions, gpu_state
from gpumon.model.accidents import AccidentKind
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.recording.history import History
from gpumon.text.formatting import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric as Family

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Snapshot

SAMPLE_TIME = "gpumon_sample_timestamp_seconds"

LEAST_STALE_SECONDS = 15.0
"""Values are served up to this age at least: dcgm-exporter's default is to collect every 30 s."""
_STALE_INTERVALS = 3
"""Values are served up to this number of intervals, if that is longer."""

_READABLE = (GpuStatus.OK, GpuStatus.FAILING, GpuStatus.NO_ANSWER)
"""The states of GPUs whose values are read, or would be if the driver returned."""


class Page(NamedTuple):
    """A rendered page."""

    text: bytes  # In UTF-8.
    zipped: bytes  # With gzip.


class MetricsPages:
    """Renders pages, and holds the newest.

    ``take`` and ``fail`` are called on one thread at a time, ``newest`` on any. Pages
    ``with_jobs`` have what each job uses, too: see ``gpumon.exporter.job_metrics``.
    """

    def __init__(
        self,
        host: str,
        interval: float,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        with_jobs: bool = False,
    ) -> None:
        self._stale_after = max(LEAST_STALE_SECONDS, _STALE_INTERVALS * interval)
        self._monotonic = monotonic
        self._history = History(conditions())
        self._accidents: dict[tuple[str | None, AccidentKind], float] = {}
        self._limits = LabelLimits()
        self._with_jobs = with_jobs
        self._without_driver = _page(_driver_families(host, up=False))
        self._newest = (monotonic(), _page(iter(())))

    def newest(self) -> Page:
        """The newest page; one without values if no sample has come for long."""
        rendered_at, page = self._newest
        if self._monotonic() - rendered_at > self._stale_after:
            return self._without_driver
        return page

    def take(self, snapshot: Snapshot) -> None:
        """Render a snapshot. A listener of the collector."""
        self._history.add(snapshot)
        self._remember_accidents(snapshot)
        self._newest = (self._monotonic(), _page(self._families(snapshot)))

    def fail(self) -> None:
        """Serve from now on that the driver cannot be used."""
        self._newest = (self._monotonic(), self._without_driver)

    def _families(self, snapshot: Snapshot) -> Iterator[Family]:
        current = self._without_old_values(snapshot)
        uses = job_uses(current) if self._with_jobs else {}
        yield from families(self._limits.apply(current, names_by_memory(uses)))
        if uses:
            yield from job_families(current, uses, self._limits.job)
        yield from self._gpu_families(snapshot)
        sampled_at = [gpu.sampled_at for gpu in snapshot.gpus if gpu.sampled_at is not None]
        yield from _driver_families(
            snapshot.host.name,
            up=self._is_driver_up(snapshot),
            sampled_at=max(sampled_at, default=None),
        )

    def _gpu_families(self, snapshot: Snapshot) -> Iterator[Family]:
        """The families that come from the history."""
        gpus = [(gpu, gpu_labels(gpu, snapshot.host.name)) for gpu in snapshot.gpus]
        about = "State of the GPU in gpumon's words: 1 for the present one, the others are absent."
        states = [
            ([*labels, _state_word(gpu_state(self._history, gpu))], 1) for gpu, labels in gpus
        ]
        yield from gauge(STATE, about, (*GPU_LABELS, "state"), states)
        about = "When the driver last reported this XID for the GPU, as far as gpumon has seen."
        xids = [
            ([*labels, str(xid)], at)
            for gpu, labels in gpus
            for xid, at in sorted(self._history.xids(gpu.uuid).items())
        ]
        yield from gauge(XID_LAST_SEEN, about, (*GPU_LABELS, "xid"), xids)

        about = "When the kernel last reported this accident of the GPU, as far as gpumon has seen."
        accidents = [
            ([*labels, kind.value], at)
            for gpu, labels in gpus
            for (uuid, kind), at in self._accidents.items()
            if uuid == gpu.uuid
        ]
        yield from gauge(ACCIDENT_LAST_SEEN, about, (*GPU_LABELS, "kind"), accidents)
        about = "When the OOM killer last killed a process, as far as gpumon has seen."
        killed = self._accidents.get((None, AccidentKind.OUT_OF_MEMORY))
        host = (printable(snapshot.host.name),)
        yield from gauge(OOM_KILL_LAST_SEEN, about, ("Hostname",), [(host, killed)])

    def _remember_accidents(self, snapshot: Snapshot) -> None:
        for accident in snapshot.accidents:
            # XIDs have a metric of their own.
            if accident.kind is not AccidentKind.ERROR_CODE:
                key = accident.gpu_uuid, accident.kind
                self._accidents[key] = max(accident.time, self._accidents.get(key, 0.0))

    def _is_driver_up(self, snapshot: Snapshot) -> bool:
        """Whether the driver returns values of at least one GPU, if it has one to read."""
        if snapshot.trouble is not None:
            return False
        readable = [gpu for gpu in snapshot.gpus if gpu.status in _READABLE]
        return not readable or any(
            gpu.status is not GpuStatus.NO_ANSWER and not self._is_old(gpu.sampled_at, snapshot)
            for gpu in readable
        )

    def _is_old(self, read_at: float | None, snapshot: Snapshot) -> bool:
        return read_at is not None and snapshot.time - read_at > self._stale_after

    def _without_old_values(self, snapshot: Snapshot) -> Snapshot:
        gpus = tuple(
            _identity(gpu) if self._is_old(gpu.sampled_at, snapshot) else gpu
            for gpu in snapshot.gpus
        )
        old_list = self._is_old(snapshot.processes_at, snapshot)
        if old_list:
            # The network adapters are read with the lists.
            host = replace(snapshot.host, nics=None)
            return replace(snapshot, host=host, gpus=gpus, processes=())
        return replace(snapshot, gpus=gpus)


def _driver_families(host: str, *, up: bool, sampled_at: float | None = None) -> Iterator[Family]:
    labels, values = ("Hostname",), (printable(host),)
    about = "Whether the driver can be used and returns from its calls."
    yield from gauge(DRIVER_UP, about, labels, [(values, up)])
    about = "When the newest values were read."
    yield from gauge(SAMPLE_TIME, about, labels, [(values, sampled_at)])


def _identity(gpu: Gpu) -> Gpu:
    """A GPU with its labels, its status and its last error, without any value."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        status=gpu.status,
        name=gpu.name,
        pci_bus_id=gpu.pci_bus_id,
        xid=gpu.xid,
    )


def _state_word(finding: Finding) -> str:
    """The word for a state, without its duration, so that the number of series is bounded."""
    is_exported = finding.brief in RULES[finding.kind].exported_briefs
    return finding.brief if is_exported else finding.kind.value


def _page(found: Iterator[Family]) -> Page:
    text = as_text(found).encode()
    return Page(text, gzip.compress(text, mtime=0))
