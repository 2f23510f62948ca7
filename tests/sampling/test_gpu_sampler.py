"""A look at the GPUs has an end where the driver has none, and a machine may lack most parts."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from gpumon.host.process_host import Refused, Target
from gpumon.makers.demo import DemoSource
from gpumon.makers.source import Call
from gpumon.model.processes import ProcessId
from gpumon.model.topology import NO_KNOWN_LINKS
from gpumon.sampling.gpu_sampler import QUICK_PATIENCE, GpuSampler, UnavailableError
from gpumon.sampling.machine import Machine
from tests.build import snapshot
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from gpumon.model.snapshot import Snapshot


class HangingSource:
    """Stands for a driver in which a call does not come back until ``go`` is set."""

    def __init__(self, since: float) -> None:
        self.go = threading.Event()
        self.driver_seconds = 0.0
        self._call = Call(None, "nvmlInit_v2", since)

    @property
    def hostname(self) -> str:
        return "ada"

    @property
    def current_call(self) -> Call | None:
        return None if self.go.is_set() else self._call

    def open(self) -> None:
        self.go.wait()

    def sample(self, *, full: bool = True) -> Snapshot:
        assert full
        return snapshot(time.time())

    def give_up(self, _call: Call, /) -> bool:
        return False

    def past(self) -> tuple[Snapshot, ...]:
        return ()

    def close(self) -> None:
        """Nothing to give back."""


def test_a_call_that_hangs_does_not_block_the_exit() -> None:
    source = HangingSource(time.monotonic() - 60)
    with GpuSampler(source) as sampler:
        with pytest.raises(UnavailableError, match=r"not answered for 1m"):
            sampler.sample(0.1)
        assert sampler.next(0.1) is None
        ended_at = time.monotonic()
    assert time.monotonic() - ended_at < QUICK_PATIENCE / 2
    source.go.set()


def test_a_snapshot_between_two_calls_is_not_missed() -> None:
    source = HangingSource(time.monotonic())
    came = threading.Event()
    with GpuSampler(source) as sampler:
        sampler.collector.subscribe(lambda _: came.set())
        source.go.set()
        assert came.wait(PATIENCE)
        assert sampler.next(0.0) is not None
        assert sampler.next(0.0) is None


class Sampled(Machine):
    """A machine of which only samples are known."""

    @property
    def source(self) -> DemoSource:
        return DemoSource()


def test_a_machine_of_which_only_samples_are_known_has_processes_that_get_no_signal() -> None:
    machine = Sampled()
    assert (machine.name, machine.reservations) == (None, None)
    assert machine.links() is NO_KNOWN_LINKS
    assert machine.processes.readonly
    assert machine.processes is machine.processes
    with pytest.raises(Refused):
        machine.processes.open_handle(Target(ProcessId(1, 1), 0))
