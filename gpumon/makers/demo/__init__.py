"""A simulated machine: eight H100s shared by several users.

Everything is a function of the seed, the start of the demo, the requested time and the signals that
its processes received. The same seed and clock give the same snapshots, however often and in
whatever order they are taken. So the demo also has a past, and findings such as "idle for 3 hours"
follow from history as on a real machine.

Only ``Snapshot.source`` says that it is not real. Its PIDs may be those of real processes: a
process of a snapshot with source ``demo`` must only be signalled through ``DemoSource.host``, which
affects simulated processes only.
"""

from gpumon.makers.demo.scenario import DemoMachine
from gpumon.makers.demo.source import DemoSource

__all__ = ["DemoMachine", "DemoSource"]
