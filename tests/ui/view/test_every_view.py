"""What every view promises: whole rows at every size, and no text that acts on the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import gpumon
from gpumon.accidents import report_of
from gpumon.alerts.notice import Notice
from gpumon.config.keymap import DEFAULT_WINDOW, WINDOWS
from gpumon.findings import Severity
from gpumon.findings.groups import jobs
from gpumon.fleet.fleet import HostStatus
from gpumon.host.process_host import Details, RelatedProcess, Target
from gpumon.kill.outcome import Outcome, TargetOutcome, TerminationReport
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.network import Nic, NicKind
from gpumon.model.snapshot import Host, Trouble
from gpumon.model.topology import DeviceKind, Joint, Link, Topology, TopologyDevice
from gpumon.recording.playback.replay import Playing
from gpumon.recording.recording import Event, EventKind
from gpumon.text.cells import Row, row_width
from gpumon.text.process_columns import RowContext
from gpumon.ui.view.accidents_page import accident_rows
from gpumon.ui.view.alerts_page import alert_rows
from gpumon.ui.view.compare_page import compare_rows
from gpumon.ui.view.dashboard_view import Timeline, View
from gpumon.ui.view.fleet_rows import FleetPicture
from gpumon.ui.view.fleet_view import FleetListing, FleetView, show_list
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_charts import chart_rows
from gpumon.ui.view.gpu_page import gpu_rows
from gpumon.ui.view.host_strip import host_rows
from gpumon.ui.view.kill_report import report_rows
from gpumon.ui.view.network_view import nic_rows
from gpumon.ui.view.process_page import job_rows, process_rows
from gpumon.ui.view.process_table import Listing
from gpumon.ui.view.timeline import timeline_rows
from gpumon.ui.view.topology_page import topology_rows
from tests.build import NOON, gpu, recording_of, snapshot
from tests.export.hostile import snapshot_of, texts
from tests.hosts import host, host_state
from tests.ui.view.drawing import dashboard_of, demo, history_of

Draw: TypeAlias = Callable[[str, int, int], list[Row]]
"""Draws a view full of a text, in so many columns and lines."""

FOLDER = Path(gpumon.__file__).parent / "ui" / "view"
PAST = Playing(NOON, NOON - 60, NOON + 60, playing=False, speed=1.0, at_end=False)


def _dashboard(listing: Listing) -> Draw:
    def draw(text: str, width: int, height: int) -> list[Row]:
        view = View(interval=0.5, listing=listing, host_strip=True, message=text)
        return dashboard_of(snapshot_of(text), width, height, view).all()

    return draw


def _without_gpus(text: str, width: int, height: int) -> list[Row]:
    now = replace(snapshot(), gpus=(), trouble=Trouble(text, text))
    return dashboard_of(now, width, height).all()


def _fleet(listing: FleetListing) -> Draw:
    def draw(text: str, width: int, height: int) -> list[Row]:
        state = replace(host_state(f"gpu-{text}"), snapshot=snapshot_of(text))
        down = replace(state, name="b", status=HostStatus.DOWN, sentence=text)
        hosts = (host(state), host(replace(state, name="b"), down, place=1))
        view = replace(show_list(FleetView(interval=1.0), listing), cursor=hosts[0].name)
        parts = FleetPicture().rows(hosts, view, NOON, width, height, "DEMO", "slurm 7")
        return [*parts.header, *parts.lines, *parts.rule, *parts.footer]

    return draw


def _gpu_page(text: str, width: int, height: int) -> list[Row]:
    now = snapshot_of(text)
    history = history_of(now)
    return gpu_rows(
        *(Memo(), now.gpus[0], history, now, DEFAULT_WINDOW, recording_of()),
        *(width, height, text),
    )


def _gpu_charts(text: str, width: int, height: int) -> list[Row]:
    now, history = demo()
    marks = recording_of(Event(NOON - 9, EventKind.CAME, text, text, (now.gpus[0].uuid,)))
    return chart_rows(Memo(), now.gpus[0], history, WINDOWS[0], marks, width, height)


def _compared(text: str, width: int, height: int) -> list[Row]:
    now = snapshot_of(text)
    gpus = (now.gpus[0], gpu(index=1), gpu(index=2))
    gone = {"GPU-2": "not listed since 12:00"}
    return compare_rows(Memo(), gpus, gone, history_of(now), now, DEFAULT_WINDOW, width, height)


def _process_page(text: str, width: int, _: int) -> list[Row]:
    now = snapshot_of(text)
    (shown,), history = now.processes, history_of(now)
    details = Details(
        shown.id,
        command=(text, text),
        executable=text,
        cwd=text,
        environment=((text or "A", text), ("CUDA_VISIBLE_DEVICES", text)),
        wait_channel=text,
        state="D",
        devices=(text,),
        place=shown.place,
        family=(RelatedProcess(shown.id, 812, 1, 1, text, (text, text), user=text),),
        unreadable=(text,),
    )
    load = shown.load and replace(shown.load, problem=None)
    return [
        *process_rows(
            *(Memo(), shown, history, now, DEFAULT_WINDOW, width), details=details, reveals=True
        ),
        *process_rows(Memo(), replace(shown, load=load), history, now, DEFAULT_WINDOW, width),
    ]


def _job_page(text: str, width: int, _: int) -> list[Row]:
    now = snapshot_of(text)
    (job,) = jobs(now.processes)
    return job_rows(job, text, now.gpus, RowContext(NOON), width)


def _accidents(text: str, width: int, _: int) -> list[Row]:
    now = snapshot_of(text)
    memory = Accident(
        *(NOON, AccidentKind.OUT_OF_MEMORY, None, None, 9, text, text), cgroup=text, memory=2**37
    )
    reports = [report_of(one, now, None) for one in (*now.accidents, memory)]
    rows, owners = accident_rows(reports, 0, NOON - 60, NOON, width, is_complete=True)
    assert len(owners) == len(rows)
    return rows


def _alerts(text: str, width: int, _: int) -> list[Row]:
    notice = Notice(
        alert=text,
        key=text,
        host=text,
        at=NOON,
        severity=Severity.WARNING,
        title=text,
        sentence=text,
    )
    rows, owners = alert_rows((notice,), 0, (text,), (), (text,), NOON, width)
    assert len(owners) == len(rows)
    return rows


def _topology(text: str, width: int, _: int) -> list[Row]:
    devices = (
        TopologyDevice(DeviceKind.GPU, "GPU 0", numa_node=0, cpus="0-47", index=0),
        TopologyDevice(DeviceKind.NIC, text),
    )
    joint = Joint(Link.SYSTEM, Link.NVLINK, 18)
    return topology_rows(Topology(devices, ((None, joint), (joint, None))), width)


def _network(text: str, width: int, _: int) -> list[Row]:
    nic = Nic(text, NicKind.OTHER, nearness=text, near=(text,), errors_at=NOON - 9)
    return nic_rows(Host(text, nics=(nic,)), (gpu(),), NOON, width)


def _host(text: str, width: int, height: int) -> list[Row]:
    nic = Nic(text, NicKind.ROCE, up=False, link_lost_at=NOON - 9)
    now = snapshot_of(text)
    there = Host(text, cpu_count=96, cpu_percent=9.0, memory_total=2**40, nics=(nic,))
    tall = 1 + height % 2
    return host_rows(Memo(), there, now.processes, history_of(now), NOON, 60.0, width, tall)


def _timeline(text: str, width: int, _: int) -> list[Row]:
    events = [Event(NOON - 9, kind, text, text) for kind in EventKind]
    return timeline_rows(Timeline(PAST, events, live=True), NOON, width, with_event=True)


def _ended(text: str, width: int, height: int) -> list[Row]:
    target = Target(snapshot_of(text).processes[0].id, 1001, user=text, command=(text,))
    outcome = TargetOutcome(target, Outcome.REFUSED, signal=15, sentence=text)
    return report_rows([TerminationReport(15, 6.0, (outcome,), unlogged=text)], width, height)


VIEWS: dict[str, Draw] = {
    **{f"dashboard, {listing.value}": _dashboard(listing) for listing in Listing},
    "dashboard without GPUs": _without_gpus,
    **{f"many hosts, {listing.value}": _fleet(listing) for listing in FleetListing},
    "gpu_page": _gpu_page,
    "gpu_charts": _gpu_charts,
    "compare_page": _compared,
    "process_page": _process_page,
    "page of a job": _job_page,
    "accidents_page": _accidents,
    "alerts_page": _alerts,
    "topology_page": _topology,
    "network_view": _network,
    "host_strip": _host,
    "timeline": _timeline,
    "kill_report": _ended,
}


def test_every_page_is_among_them() -> None:
    pages = {path.stem for path in FOLDER.glob("*_page.py")}
    # Help has no text but gpumon's own.
    assert pages - {"help_page"} <= set(VIEWS)


@pytest.mark.parametrize("name", VIEWS)
@settings(max_examples=20)
@given(texts, st.integers(1, 300), st.integers(1, 80))
def test_no_text_makes_a_row_of_another_width_or_acts_on_the_terminal(
    name: str, text: str, width: int, height: int
) -> None:
    for row in VIEWS[name](text, width, height):
        assert row_width(row) == width
        assert all(part.isprintable() for part, _ in row)
