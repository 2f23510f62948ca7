"""``gpumon exporter``: serve metrics to Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.commands import Command
from gpumon.cli.machine_options import SampleOptions
from gpumon.cli.option_groups import ASCII, IntervalOption, Option
from gpumon.cli.output import EXIT_USAGE, fail

if TYPE_CHECKING:
    import argparse


def _address(text: str) -> tuple[str, int]:
    """An address and a port."""
    found = values.match(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]*)):([0-9]{1,5})", text)
    if found is None or int(found[3]) > 65535:
        values.refuse(
            f"{text!r} is not an address with a port, such as 127.0.0.1:9835, [::1]:9835 or :9835"
        )
    return found[1] or found[2] or "", int(found[3])


class ExporterCommand(Command):
    description = (
        "Serve metrics of GPUs and users to Prometheus over HTTP until Ctrl+C or SIGTERM, with the "
        "names of NVIDIA's dcgm-exporter. docs/exporter.md describes the metrics, TLS and "
        "passwords."
    )
    needs_stdout = False
    interval = IntervalOption(5.0)
    machine = SampleOptions()
    groups = (interval, machine, ASCII)
    options = (
        Option(
            "--listen",
            metavar="ADDRESS:PORT",
            type=_address,
            default="127.0.0.1:9835",
            help="where to listen; :9835 is every address of this machine (default: %(default)s)",
        ),
        Option(
            "--web-config",
            metavar="FILE",
            help="TLS and passwords, in the format of Prometheus' exporters; read again when it "
            "changes",
        ),
        Option(
            "--jobs",
            action="store_true",
            help="also what each Slurm job, Kubernetes pod and container uses of each GPU: memory "
            "and SM; at most 64 names",
        ),
    )

    def run(self, options: argparse.Namespace) -> int:
        from gpumon.exporter.run import ListenError, export
        from gpumon.exporter.web_config import WebConfigError

        machine = self.machine.open(options)
        interval = self.interval.seconds(options)
        try:
            return export(
                machine,
                options.listen,
                interval,
                options.web_config,
                with_jobs=options.jobs,
            )
        except (WebConfigError, ListenError) as error:
            return fail(str(error), EXIT_USAGE)
