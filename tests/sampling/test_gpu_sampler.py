"""A look at the GPUs has an end where the driver has none, and a machine may lack most parts."""

from __future__ import annotations

import threading
import time

import pytest

from gpumon.host.process_host import Refused, Target
from gpumon.makers.demo import DemoSource
from gpumon.makers.source import Call
from gpumon.model.processes import ProcessId
from gpumon.model.topology import NO_KNOWN_LINKS
from gpumon.sampling.gpu_sampler import QUICK_PATIENCE, GpuSampler, UnavailableError
from gpumon.sampling.machine import Machine
from tests.sampling.test_collector import RealSource
from tests.screen import PATIENCE


def hanging_source(since: float) -> RealSource:
    """A driver in which a call does not come back until it may answer."""
    source = RealSource()
    source.may_answer.clear()
    source.current_call = Call(None, "nvmlInit_v2", since)

    def open_late() -> None:
        source.may_answer.wait()
        source.current_call = None

    source.on_open = open_late
    return source


def test_a_call_that_hangs_does_not_block_the_exit() -> None:
    source = hanging_source(time.monotonic() - 60)
    with GpuSampler(source) as sampler:
        with pytest.raises(UnavailableError, match=r"not answered for 1m"):
            sampler.sample(0.1)
        assert sampler.next(0.1) is None
        ended_at = time.monotonic()
    assert time.monotonic() - ended_at < QUICK_PATIENCE / 2
    source.may_answer.set()


def test_a_snapshot_between_two_calls_is_not_missed() -> None:
    source = hanging_source(time.monotonic())
    came = threading.Event()
    with GpuSampler(source) as sampler:
        sampler.collector.subscribe(lambda _: came.set())
        source.may_answer.set()
        assert came.wait(PATIENCE)
        assert source.full
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
