"""Options that say which machines and which GPUs; see ``option_groups``."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpumon.cli import values
from gpumon.cli.option_groups import ASCII, Option, OptionGroup, SharedOption
from gpumon.cli.output import say
from gpumon.model.makers import AUTO, backends, makers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Iterator

    from gpumon.config import Settings
    from gpumon.fleet.fleet import Fleet
    from gpumon.fleet.host_names import HostList
    from gpumon.model.selection import GpuSelection
    from gpumon.prometheus import PrometheusFleet
    from gpumon.sampling.machine import Machine


GPUS = SharedOption(
    "--gpus",
    metavar="LIST",
    type=values.selection,
    help="only these GPUs: indices, ranges, UUIDs or their beginnings, such as 0,2-3,GPU-1a2b",
)
_USER = SharedOption("--user", metavar="NAME", type=values.user, help="only this user's processes")
_FILTER = SharedOption(
    "--filter",
    metavar="TERMS",
    type=values.filter_terms,
    help="only processes that match, such as 'user:ann mem>10G !idle>1h'; the help page of the "
    "dashboard lists the terms",
)


def _drivers() -> str:
    """The drivers of all makers: ``NVIDIA's (nvml), AMD's (amdgpu)``."""
    return ", ".join(
        f"{maker.name}'s ({' and '.join(maker.kernel_drivers) if maker.is_drm else maker.backend})"
        for maker in makers()
    )


_SOURCE = (
    SharedOption(
        "--backend",
        choices=backends(),
        help=f"the driver to read: {_drivers()}; auto: all discrete GPUs, integrated ones "
        "only if there are no others; all: all GPUs (default: auto). docs/makers.md",
    ),
    SharedOption(
        "--demo",
        action="store_true",
        help="a simulated machine with eight GPUs; needs no GPU",
    ),
)


class SourceOptions(OptionGroup):
    """Which driver to read, or the simulated machine; and further options."""

    def __init__(self, *options: Option, title: str = "") -> None:
        super().__init__(*options, *_SOURCE, title=title)

    def fault(
        self,
        options: argparse.Namespace,
        given: Iterable[argparse.Action],  # noqa: ARG002 - the signature of all groups
    ) -> str | None:
        """See ``OptionGroup.fault``."""
        if options.demo and options.backend is not None:
            return "--backend is a driver of this machine, and --demo needs none: give one of them."
        return None

    def open(
        self, options: argparse.Namespace, *, profiled: bool = True, readonly: bool = True
    ) -> Machine:
        """The machine, of which nothing is open yet; with ``readonly`` no process gets a signal.

        ``profiled`` reads ``sm_active`` and the like, for which one sample is not enough.
        """
        from gpumon.api.local import open_machine

        asked = FleetOptions.asked(options)
        if asked is not None:
            # A command that forgets other machines fails here instead of acting on this one.
            raise RuntimeError(f"{asked} was given, and this machine would be used")
        return open_machine(
            self.sampled(options),
            demo=bool(options.demo),
            profiled=profiled,
            backend=options.backend or AUTO,
            readonly=readonly,
        )

    def sampled(self, options: argparse.Namespace) -> GpuSelection | None:
        """The GPUs to sample; ``None`` for all."""
        chosen: GpuSelection | None = options.gpus
        return chosen


class SampleOptions(SourceOptions):
    """What is sampled of this machine: ``--gpus``, ``--backend`` and ``--demo``.

    With ``user`` there is ``--user``, too, and with ``filtered`` ``--filter``.
    """

    def __init__(self, *, user: bool = False, filtered: bool = False) -> None:
        chosen = [*([_USER] if user else []), *([_FILTER] if filtered else [])]
        super().__init__(GPUS, *chosen, title="what to show")


_SSH = (
    SharedOption(
        "--hosts",
        metavar="LIST",
        help="monitor these machines over ssh instead of this one: gpu-01,gpu-[02-16],ann@box, "
        "@FILE with a name on each line, group:NAME of the configuration, slurm:JOB for the GPUs "
        "of a Slurm job. docs/fleet.md",
    ),
    SharedOption(
        "--ssh",
        metavar="COMMAND",
        help="with --hosts: the ssh client, such as 'ssh -F FILE' (default: that of the "
        "configuration, or ssh)",
    ),
)
_PROMETHEUS = (
    SharedOption(
        "--prometheus",
        metavar="URL",
        nargs="?",
        const="",
        help="monitor the machines whose metrics this Prometheus has, such as "
        "http://prometheus:9090 (default: that of the configuration, which also has passwords). "
        "docs/fleet.md",
    ),
    SharedOption(
        "--match",
        metavar="MATCHERS",
        help="with --prometheus: only metrics with these labels, as in PromQL: 'job=\"dcgm\"'",
    ),
)
TIMEOUT = 10.0
"""Seconds to wait for the answers of other machines."""
_TIMEOUT = Option(
    "--timeout",
    metavar="TIME",
    type=values.timespan,
    help=f"with other machines: how long to wait for answers (default: {TIMEOUT:g}s)",
)


class FleetOptions(OptionGroup):
    """Other machines, in place of this one.

    With ``--hosts`` or ``--prometheus`` every option that is not named here is refused: one that
    means this machine would have no effect, or act on the wrong machine.

    Args:
        hosts: The options that have an effect with ``--hosts``, as in the help.
        prometheus: The same for ``--prometheus``; ``None`` if the command cannot use it.
        timeout: Whether to add ``--timeout``.
        reason: Why an option is refused with ``--hosts``.

    Attributes:
        accepted: The options that have an effect, by the option that names the machines.
    """

    _ONE_SAMPLE_INTERVAL = 0.25

    def __init__(
        self,
        hosts: Collection[str],
        prometheus: Collection[str] | None = None,
        *,
        timeout: bool = False,
        reason: str = "means this machine",
    ) -> None:
        self.accepted = {"--hosts": hosts}
        if prometheus is not None:
            self.accepted["--prometheus"] = prometheus
        self._reason = reason
        super().__init__(
            *_SSH,
            *(_PROMETHEUS if prometheus is not None else ()),
            *([_TIMEOUT] if timeout else []),
            title="other machines",
        )

    def refusal(self, name: str) -> str | None:
        """See ``OptionGroup.refusal``."""
        if name != "--prometheus" or name in self.accepted:
            return None
        return f"{name} does not work with {{command}}: use --hosts, which connects by ssh."

    def fault(self, options: argparse.Namespace, given: Iterable[argparse.Action]) -> str | None:
        asked = self.asked(options)
        if options.hosts is not None and options.prometheus is not None:
            return "--hosts connects by ssh and --prometheus does not: give one of them."
        for name, needed in (
            ("ssh", "--hosts"),
            ("match", "--prometheus"),
            ("timeout", asked or "--hosts"),
        ):
            if getattr(options, name, None) is not None and asked != needed:
                return f"--{name} needs {needed}, which names the machines to connect to."
        if asked is None:
            return None
        accepted = self.accepted[asked]
        if options.demo and "--demo" not in accepted:
            return f"simulated machines are shown on a terminal only: leave out --demo or {asked}."
        if options.demo and options.ssh is not None:
            return "--ssh connects to machines, and --demo simulates them: give one of them."
        own = {option.names[-1] for option in (*self.options, *ASCII.options)}
        for name in (action.option_strings[-1] for action in given):
            if name not in accepted and name not in own:
                known = name in self.accepted["--hosts"]
                reason = f"has no effect with {asked}" if known else self._reason
                return f"{name} {reason}: leave out {asked}."
        return None

    @staticmethod
    def asked(options: argparse.Namespace) -> str | None:
        """The option that names other machines; ``None`` if this machine is meant."""
        for name in ("hosts", "prometheus"):
            if getattr(options, name) is not None:
                return f"--{name}"
        return None

    def patience(self, options: argparse.Namespace) -> float:
        """Seconds to wait for answers."""
        seconds: float = getattr(options, "timeout", None) or TIMEOUT
        return seconds

    def open(
        self, options: argparse.Namespace, interval: float, patience: float = math.inf
    ) -> Fleet:
        """The machines, before gpumon connects to them. Mistakes in the configuration are reported.

        ``patience`` is how long to wait for an answer about a process.

        Raises:
            FleetError: The hosts, the ssh client, the URL or a file with a secret cannot be read.
        """
        from gpumon.config import load

        loaded = load()
        if options.demo:
            from gpumon.fleet.demo import DemoFleet, job_hosts
            from gpumon.fleet.host_names import read_host_list

            groups = loaded.settings.hosts.groups
            hosts = read_host_list(options.hosts, groups, job_hosts)
            fleet = DemoFleet(hosts.names, interval, nodes=tuple(hosts.jobs_by_host))
            return _narrowed(fleet, hosts)
        for error in loaded.errors:
            say(error.sentence)
        if options.prometheus is not None:
            return _prometheus_fleet(options, loaded.settings, interval)
        return _ssh_fleet(options, loaded.settings, interval, patience)

    @contextmanager
    def connected(self, options: argparse.Namespace, patience: float = math.inf) -> Iterator[Fleet]:
        """The machines for one sample, connected until the end of the block; see ``open``."""
        fleet = self.open(options, self._ONE_SAMPLE_INTERVAL, patience)
        fleet.start()
        try:
            yield fleet
        finally:
            fleet.close()


def _prometheus_fleet(
    options: argparse.Namespace, settings: Settings, interval: float
) -> PrometheusFleet:
    from gpumon.prometheus import PrometheusFleet, read_endpoint, read_match

    match = options.match
    endpoint = read_endpoint(options.prometheus, settings.prometheus)
    return PrometheusFleet(
        endpoint, read_match(settings.prometheus.match if match is None else match), interval
    )


def _ssh_fleet(
    options: argparse.Namespace, settings: Settings, interval: float, patience: float
) -> Fleet:
    from gpumon.fleet.host_names import read_host_list, read_hosts
    from gpumon.fleet.ssh import SshClient, read_client
    from gpumon.fleet.ssh_fleet import SshFleet

    hosts = settings.hosts
    client = SshClient(
        read_client(hosts.ssh if options.ssh is None else options.ssh),
        hosts.command,
        {
            host: command
            for listed, command in hosts.commands.items()
            for host in read_hosts(listed, hosts.groups)
        },
    )
    listed = read_host_list(options.hosts, hosts.groups)
    return _narrowed(SshFleet(listed.names, interval, client, patience), listed)


def _narrowed(fleet: Fleet, hosts: HostList) -> Fleet:
    """The fleet with only the GPUs of the jobs in its list."""
    if not hosts.jobs:
        return fleet
    from gpumon.fleet.narrowed import NarrowedFleet

    return NarrowedFleet(fleet, hosts)
