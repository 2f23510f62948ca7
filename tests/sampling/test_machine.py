"""What a machine is that has only some of what a machine may have."""

from __future__ import annotations

import pytest

from gpumon.host.process_host import Refused, Target
from gpumon.makers.demo import DemoSource
from gpumon.model.processes import ProcessId
from gpumon.model.topology import NO_KNOWN_LINKS
from gpumon.sampling.machine import Machine


class Sampled(Machine):
    """A machine of which only samples are known."""

    @property
    def source(self) -> DemoSource:
        return DemoSource()


def test_a_machine_of_which_only_samples_are_known_has_processes_that_get_no_signal() -> None:
    machine = Sampled()
    assert machine.name is None
    assert machine.reservations is None
    assert machine.links() is NO_KNOWN_LINKS
    assert machine.processes.readonly
    assert machine.processes is machine.processes
    with pytest.raises(Refused):
        machine.processes.open_handle(Target(ProcessId(1, 1), 0))
