"""``gpumon.measure()``: what the GPUs did while a block ran, and what this process had of them."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from gpumon.api.local import open_machine, selection_of
from gpumon.api.usage import NO_USE, GpuUsage, OwnUse, UsageSample, UsageTally
from gpumon.host.process_tree import Descendants
from gpumon.makers.source import SourceError
from gpumon.makers.visible_devices import visible_devices_of
from gpumon.model.interval import MAX_INTERVAL, MIN_INTERVAL
from gpumon.model.makers import makers_of
from gpumon.model.selection import ALL
from gpumon.sampling.gpu_sampler import PATIENCE, QUICK_PATIENCE, GpuSampler

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from gpumon.api.local import Gpus
    from gpumon.model.processes import GpuUse
    from gpumon.model.selection import GpuSelection
    from gpumon.model.snapshot import Gpu, Snapshot

MINE = "mine"
_REACH = 2.5
"""Number of intervals for which a value counts at most; then nothing is known until the next."""
_LISTS = 2


class Measurement:
    """Measures while its block runs: ``with gpumon.measure() as m: ...``.

    It never raises because of a GPU or a driver, and so never ends the work that it measures:
    ``trouble`` says what is missing. ``gpus`` may be read at any time, also inside the block.

    Attributes:
        interval: Seconds between samples.
    """

    def __init__(self, gpus: Gpus = MINE, interval: float = 1.0, *, demo: bool = False) -> None:
        if not MIN_INTERVAL <= interval <= MAX_INTERVAL:
            raise ValueError(
                f"The interval must be {MIN_INTERVAL:g} to {MAX_INTERVAL:g} seconds, "
                f"not {interval:g}."
            )
        self.interval = interval
        self._failure: str | None = None
        self._trouble: str | None = None
        # An array of NumPy compares each of its elements.
        name = gpus if isinstance(gpus, str) else ""
        self._selection: GpuSelection | None = (
            None if name == MINE else ALL if name == "all" else selection_of(gpus)
        )
        self._demo = demo
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._tallies: dict[str, UsageTally] = {}
        self._visible: frozenset[str] | None = None
        self._sees_processes = True
        self._lists: set[float | None] = set()
        self._sampler: GpuSampler | None = None
        self._began: float | None = None
        self._ended: float | None = None
        self._sampled = 0.0
        self._descendants = Descendants(self._process)

    @property
    def trouble(self) -> str | None:
        """Why nothing is measured now, or why measuring ended; ``None`` if all is well."""
        return self._failure or self._trouble

    @property
    def seconds(self) -> float:
        """How long the block ran, or has run so far."""
        if self._began is None:
            return 0.0
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    @property
    def gpus(self) -> tuple[GpuUsage, ...]:
        """The GPUs, by index.

        For ``"mine"`` those on which this process or a descendant was seen. If none was, those that
        ``CUDA_VISIBLE_DEVICES`` names; without it, all, if the driver lists processes of another
        PID namespace, as in many containers, and else none.

        Raises:
            RuntimeError: This is a forked child of the process that measures.
        """
        if not self.is_here:
            raise RuntimeError(
                f"process {self._process} measures; this is its forked child {os.getpid()}"
            )
        with self._changed:
            # Of one list nobody knows whether a process came later.
            sees = self._sees_processes and len(self._lists) > 1
            usages = [tally.usage(sees=sees) for tally in self._tallies.values()]
            visible = self._visible
        if self._selection is None:
            own = [usage for usage in usages if usage.own]
            if not own and visible is not None:
                own = [usage for usage in usages if usage.uuid in visible]
            usages = own if own or self._sees_processes else usages
        return tuple(sorted(usages, key=lambda usage: usage.index))

    @property
    def energy(self) -> float | None:
        """Joules that these GPUs used together.

        ``None`` if that is unknown for one of them, or for more than a tenth of its time.
        """
        gpus = self.gpus
        known = [
            usage.energy
            for usage in gpus
            if usage.energy is not None and usage.energy_seconds >= 0.9 * usage.seconds
        ]
        return sum(known) if known and len(known) == len(gpus) else None

    @property
    def is_here(self) -> bool:
        """Whether this process measures, and not the one that it was forked from."""
        return self._process == os.getpid()

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON or a tracker: the attributes, and ``gpus`` as a list of theirs."""
        return {
            "seconds": self.seconds,
            "trouble": self.trouble,
            "energy": self.energy,
            "gpus": [asdict(usage) for usage in self.gpus],
        }

    def __str__(self) -> str:
        gpus = self.gpus
        if not gpus:
            return self.trouble or "This process was seen on no GPU."
        return "\n".join(map(str, gpus))

    def __enter__(self) -> Measurement:
        began = self.start()
        try:
            if self._sampler is not None:
                self._sampler.collector.wait_open(PATIENCE)
                self._wait_for_sample(began, PATIENCE)
        except SourceError as error:
            self._end(error)
        return self

    def start(self) -> float:
        """Start without waiting for the first sample; returns when, on the monotonic clock."""
        if self._began is not None:
            raise RuntimeError("a measurement is used once: call gpumon.measure() again")
        self._began = time.monotonic()
        # It may have been made before a fork.
        self._process = os.getpid()
        self._descendants = Descendants(self._process)
        try:
            machine = open_machine(self._selection, demo=self._demo)
            self._sampler = GpuSampler(machine.source, self.interval)
            self._sampler.collector.subscribe(self._take)
            self._sampler.__enter__()
        except Exception as error:  # noqa: BLE001 - what is measured goes on
            self._end(error)
        return self._began

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = ended = time.monotonic()
        if self._sampler is None or not self.is_here:
            return
        # One sample more: a short block may have none but the first.
        self._sampler.collector.sample_now()
        self._wait_for_sample(ended, QUICK_PATIENCE)
        self._end(None)

    def _wait_for_sample(self, since: float, patience: float) -> None:
        """Wait until a sample was counted since a time, or until sampling has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._sampled >= since, patience)

    def _end(self, failure: Exception | None) -> None:
        """Stop sampling, and note why that was not as intended."""
        sampler, self._sampler = self._sampler, None
        try:
            if sampler is not None:
                sampler.__exit__()
        except Exception as bug:  # noqa: BLE001 - what is measured goes on
            failure = failure or bug
        if failure is not None and self._failure is None:
            self._failure = str(failure)

    def _take(self, snapshot: Snapshot) -> None:
        """Count a sample; called on the sampling thread."""
        now = time.monotonic()
        uses = self._own_uses(snapshot)
        with self._changed:
            self._trouble = None if snapshot.trouble is None else snapshot.trouble.sentence
            if not snapshot.gpus:
                return
            self._sees_processes = snapshot.host.pids_are_ours
            if len(self._lists) < _LISTS:
                self._lists.add(snapshot.processes_at)
            if self._visible is None:
                self._visible = _visible(snapshot.gpus)
            for gpu in snapshot.gpus:
                tally = self._tallies.setdefault(gpu.uuid, UsageTally())
                listed = uses is not None and "processes" not in gpu.unknown
                own = uses.get(gpu.uuid, NO_USE) if listed and uses is not None else None
                tally.add(UsageSample(now, gpu, own), _REACH * self.interval)
            self._sampled = now
            self._changed.notify_all()

    def _own_uses(self, snapshot: Snapshot) -> dict[str, OwnUse] | None:
        """What this process and its descendants use, by GPU; ``None`` if that cannot be seen."""
        if not snapshot.host.pids_are_ours:
            return None
        found: dict[str, list[GpuUse]] = {}
        for process in self._descendants.among(snapshot.processes):
            for use in process.uses:
                found.setdefault(use.gpu_uuid, []).append(use)
        return {uuid: OwnUse.of(uses) for uuid, uses in found.items()}


def _visible(gpus: Sequence[Gpu]) -> frozenset[str] | None:
    """The GPUs that this process's environment names; ``None`` if it names none for sure."""
    makers = map(visible_devices_of, makers_of(gpus))
    meanings = [
        maker.visible(os.environ, gpus)
        for maker in makers
        if maker.selecting_variable(os.environ, gpus)
    ]
    sure = [meaning for meaning in meanings if meaning.devices or meaning.certain]
    if not sure:
        return None
    return frozenset(device.gpu_uuid for meaning in sure for device in meaning.devices)


def measure(gpus: Gpus = MINE, interval: float = 1.0, *, demo: bool = False) -> Measurement:
    """Measure GPUs while a block runs.

        with gpumon.measure() as m:
            train()
        print(m)

    Args:
        gpus: ``"mine"``: those that this process and its descendants use, see ``Measurement.gpus``;
            ``"all"``; or GPUs as in ``snapshot``.
        interval: Seconds between samples, 0.1 to 3600. Memory does not grow with time.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        ValueError: An argument is invalid. A missing driver is no error: see ``Measurement``.
    """
    return Measurement(gpus, interval, demo=demo)
