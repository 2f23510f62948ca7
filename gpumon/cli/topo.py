"""``gpumon topo``: print how GPUs, network adapters and processors are connected."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.option_groups import ASCII, output_format
from gpumon.cli.output import configure_output, fail, print_text

if TYPE_CHECKING:
    import argparse

    from gpumon.model.topology import Topology


_UNBOUNDED = 1000
"""Cells if the output is not a terminal: as many columns as there are devices."""


class TopoCommand(Command):
    description = (
        "Print how GPUs, network adapters and processors are connected: NVLink, XGMI, PCIe and "
        "NUMA nodes. docs/topology.md describes the formats. For another machine: "
        "ssh HOST gpumon topo."
    )
    machine = SampleOptions()
    groups = (machine, ASCII)
    options = (output_format("json"),)

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.sampling.gpu_sampler import take_one

        configure_output(options, options.format)
        machine = self.machine.open(options, profiled=False)
        snapshot = take_one(machine.source)
        if snapshot.trouble is not None:
            return fail(f"{snapshot.trouble.sentence} {snapshot.trouble.advice}")
        topology = machine.topology(snapshot.gpus)
        if topology is None:
            return fail("how this machine is connected is not known.")
        if options.format == "json":
            from gpumon.export.topology_json import topology_json

            return print_text(topology_json(topology, snapshot.host.name))
        return print_text(_table(topology))


def _table(topology: Topology) -> str:
    from gpumon.ui.view.topology_page import topology_rows

    width = _UNBOUNDED
    if sys.stdout.isatty():
        import shutil

        width = shutil.get_terminal_size().columns
    rows = topology_rows(topology, width)
    return "".join("".join(text for text, _ in row).rstrip() + "\n" for row in rows)
