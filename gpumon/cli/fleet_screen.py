"""``gpumon --hosts`` and ``gpumon --prometheus``: the screen of many hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.common import screen_fault, startup_options
from gpumon.cli.fleet import open_fleet
from gpumon.cli.messages import fail, say

if TYPE_CHECKING:
    import argparse

    from gpumon.config.settings import Settings
    from gpumon.fleet.fleet import Fleet
    from gpumon.model.thresholds import Thresholds
    from gpumon.ui.fleet_app import OpenHost

_ALERTS_ELSEWHERE = (
    "The alerts of the configuration are not checked for other machines: run gpumon watch there."
)
_INTERVAL = 1.0
"""Seconds between samples of a host, unless the user names another number."""


def show_fleet(options: argparse.Namespace) -> int:
    """Show the hosts of the command line until the user quits; the exit status."""
    from gpumon.config import load
    from gpumon.config.themes import choose_theme
    from gpumon.ui.terminal.startup import run_fleet

    fault = screen_fault()
    if fault is not None:
        return fail(fault)
    loaded = load()
    settings = loaded.settings
    theme = choose_theme(options.theme, settings.theme)
    fleet = fleet_of(options, settings)
    demo = bool(options.demo)
    visitor = options.visitor
    readonly = options.readonly or settings.readonly or visitor
    notes: list[str] = []

    def open_host(name: str) -> OpenHost:
        return _open_host(
            *(fleet, name, settings.thresholds, notes),
            readonly=readonly,
            demo=demo,
            commands=options.commands,
        )

    chosen = startup_options(loaded, theme, options.columns, visitor=visitor)
    try:
        return run_fleet(fleet, settings.thresholds, open_host, chosen, "DEMO" if demo else "")
    finally:
        for note in notes:
            say(note)


def fleet_of(options: argparse.Namespace, settings: Settings) -> Fleet:
    """The hosts of the command line, not connected yet.

    Raises:
        FleetError: They cannot be read.
    """
    interval = options.interval or _INTERVAL
    if not options.demo:
        return open_fleet(options, interval)
    from gpumon.fleet.demo import DemoFleet
    from gpumon.fleet.host_names import read_hosts

    return DemoFleet(read_hosts(options.hosts, settings.hosts.groups), interval)


def _open_host(
    fleet: Fleet,
    name: str,
    thresholds: Thresholds,
    notes: list[str],
    *,
    readonly: bool,
    demo: bool,
    commands: bool,
) -> OpenHost:
    """Start the session of one host: everything that the dashboard of one machine has.

    It may take seconds where the past of the host is read from elsewhere.
    """
    from gpumon.findings import conditions
    from gpumon.kill.audit_log import AuditLog, NoAuditLog
    from gpumon.recording.history import History
    from gpumon.recording.memory.recording import MemoryRecording
    from gpumon.sampling.collector import Collector
    from gpumon.sampling.enrichment import Lookup
    from gpumon.ui.fleet_app import OpenHost
    from gpumon.ui.logbook import Logbook
    from gpumon.ui.session import Session, SessionAlerts

    host = fleet.processes(name, readonly=readonly)
    lookup = Lookup(host)
    source = fleet.source(name)
    collector = Collector(source, fleet.interval, annotate=lookup.annotate)
    history = History(conditions(thresholds), thresholds)
    recording = MemoryRecording(thresholds.full_share)
    past = tuple(source.past())
    for snapshot in past:
        history.add(snapshot)
    recording.begin_with(past)
    logbook = Logbook(collector, commands=commands)
    collector.subscribe(history.add)
    collector.subscribe(recording.add)
    audit_log = NoAuditLog() if demo else AuditLog(machine=name)
    lookup.start()
    collector.start()

    def close() -> None:
        notes.extend(logbook.close())
        collector.stop()
        lookup.stop()

    alerts = SessionAlerts(note=_ALERTS_ELSEWHERE)
    session = Session(
        *(collector, history, host, lookup, audit_log, recording, logbook),
        machine=name,
        alerts=alerts,
    )
    return OpenHost(session, close)
