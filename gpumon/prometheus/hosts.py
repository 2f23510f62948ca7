"""The hosts: a snapshot of what was read, and what is known of each over time."""

from __future__ import annotations

import math
import re
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from gpumon.findings import RULES, FindingKind
from gpumon.fleet.fleet import MEASURED_FIELDS, HostOrigin, HostState, HostStatus, without_values
from gpumon.model.bounds import plausible_gpus
from gpumon.model.error_codes import error_code
from gpumon.model.metrics import Unit
from gpumon.model.snapshot import (
    GPU_METRICS,
    Gpu,
    GpuStatus,
    Host,
    MigInstance,
    Snapshot,
    Trouble,
    Unknown,
)
from gpumon.stream import GpuState

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpumon.prometheus.readings import GpuReading, HostReading

SOURCE = "prometheus"
_NO_LISTS: Mapping[str, Unknown] = {"processes": Unknown.NOT_EXPORTED}
_STATUS = {status.value: status for status in GpuStatus}
_KIND = {
    **{brief: kind for kind, rule in RULES.items() for brief in rule.exported_briefs},
    **{kind.value: kind for kind in FindingKind},
}
"""The kinds of findings by the words of gpumon's exporter."""
_MOST_INDEX = 9999
_NO_INDEX = math.inf
_TEXT_CHARACTERS = 256
_MIG_SIZES = ("memory_total", "memory_used", "memory_free")
_SHARES = tuple(metric.field for metric in GPU_METRICS if metric.unit is Unit.SHARE)
_DRIVER_DOWN = Trouble(
    "Its exporter reports that the driver cannot be used.",
    "gpumon doctor there may show the reason.",
)
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
_NO_GPU = "its exporter answers Prometheus, but reports no GPU"


def snapshot(name: str, reading: HostReading, time: float, *, whole: bool) -> Snapshot:
    """The snapshot of a host, scraped at ``time`` by this machine's clock.

    Without ``whole`` not every metric was asked for: those that are missing are not read yet.
    """
    if reading.is_driver_up is False and not reading.gpus:
        return Snapshot(time, Host(name), source=SOURCE, trouble=_DRIVER_DOWN)
    gpus = [_gpu(uuid, index, gpu, time, whole=whole) for index, uuid, gpu in _order(reading)]
    return Snapshot(
        time,
        Host(name, driver_version=_driver_version(reading)),
        plausible_gpus(tuple(gpus)),
        source=SOURCE,
    )


def states(reading: HostReading) -> tuple[GpuState, ...]:
    """What gpumon's exporter says of the GPUs, in the order of the snapshot; else empty."""
    ordered = _order(reading)
    if not any(gpu.state[0] for _, _, gpu in ordered):
        return ()
    found = [(uuid, _KIND.get(gpu.state[0], FindingKind.UNKNOWN)) for _, uuid, gpu in ordered]
    return tuple([GpuState(uuid, kind, RULES[kind].severity) for uuid, kind in found])


def _order(reading: HostReading) -> list[tuple[int, str, GpuReading]]:
    """The GPUs with their indices, ascending.

    A GPU whose index is unknown, or that of another GPU, gets the next free index.
    """
    known = sorted(
        [(_index(gpu), uuid, gpu) for uuid, gpu in reading.gpus.items()],
        key=lambda found: found[:2],
    )
    ordered: dict[int, tuple[str, GpuReading]] = {}
    unnumbered = []
    for index, uuid, gpu in known:
        if index is _NO_INDEX or index in ordered:
            unnumbered.append((uuid, gpu))
        else:
            ordered[int(index)] = uuid, gpu
    free = (index for index in count() if index not in ordered)
    ordered |= dict(zip(free, unnumbered, strict=False))
    return [(index, *ordered[index]) for index in sorted(ordered)]


def _index(gpu: GpuReading) -> float:
    text = gpu.labels.gpu
    if re.fullmatch(r"[0-9]{1,4}", text):
        return int(text)
    index = gpu.value("index")
    return _NO_INDEX if index is None or index > _MOST_INDEX else index


def _gpu(uuid: str, index: int, reading: GpuReading, time: float, *, whole: bool) -> Gpu:
    labels = reading.labels
    # What the structure needs in any case is in labels.
    known: dict[str, Any] = {
        field: value
        for field, (value, _) in reading.values.items()
        if value is not None and field != "index"
    }
    known |= _memory(reading)
    known["name"] = (labels.modelName or labels.name)[:_TEXT_CHARACTERS] or None
    known["pci_bus_id"] = labels.pci_bus_id[:_TEXT_CHARACTERS] or None
    if (xid := _xid(reading)) is not None:
        known["xid"], known["xid_at"] = xid, reading.xids.get(xid)
    mig = _mig(uuid, reading)
    if mig:
        known["mig_mode"] = True
    return Gpu(
        index=index,
        uuid=uuid,
        status=_STATUS.get(reading.status[0], GpuStatus.OK),
        sampled_at=time,
        unknown={
            **_NO_LISTS,
            **{name: Unknown.NOT_EXPORTED for name in MEASURED_FIELDS if known.get(name) is None},
        }
        if whole
        else _NO_LISTS,
        mig=mig,
        **known,
    )


def _xid(reading: GpuReading) -> int | None:
    """The last XID; in MIG mode the gravest, as dcgm-exporter writes an XID for each instance."""
    found = [part.value("xid") for part in (reading, *reading.mig.values())]
    numbers = [int(value) for value in found if value is not None]
    return min(numbers, key=lambda number: error_code(number).passing, default=None)


def _memory(reading: GpuReading) -> dict[str, int]:
    """The sizes of a GPU's memory. dcgm-exporter's own list has no total: it is the sum."""
    names = ("memory_total", "memory_used", "memory_free", "memory_reserved")
    total, used, free, reserved = (
        None if (value := reading.value(name)) is None else int(value) for name in names
    )
    if total is None and used is not None and free is not None:
        total = used + free + (reserved or 0)
    elif free is None and total is not None and used is not None:
        # More in use than there is: what is free is unknown too.
        free = None if used > total else max(0, total - used - (reserved or 0))
    sizes = (total, used, free, reserved)
    return {name: size for name, size in zip(names, sizes, strict=True) if size is not None}


def _mig(uuid: str, reading: GpuReading) -> tuple[MigInstance, ...]:
    """The MIG instances; metrics have the number of the GPU instance, and no UUID."""
    ordered = sorted(reading.mig.items(), key=lambda found: (len(found[0]), found[0]))
    return tuple(
        [
            MigInstance(
                f"{uuid}/{number}",
                index,
                gpu_instance=int(number) if re.fullmatch(r"[0-9]{1,4}", number) else None,
                profile=instance.labels.GPU_I_PROFILE[:_TEXT_CHARACTERS] or None,
                **{name: size for name, size in _memory(instance).items() if name in _MIG_SIZES},
                **_shares(instance),
            )
            for index, (number, instance) in enumerate(ordered)
        ]
    )


def _shares(reading: GpuReading) -> dict[str, Any]:
    """How much of a GPU or an instance works, in percent."""
    found = ((name, reading.value(name)) for name in _SHARES)
    return {name: float(value) for name, value in found if value is not None}


def _driver_version(reading: HostReading) -> str | None:
    for gpu in reading.gpus.values():
        version = gpu.labels.DCGM_FI_DRIVER_VERSION or gpu.labels.driver_version
        if version:
            return version[:_TEXT_CHARACTERS]
    return None


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
