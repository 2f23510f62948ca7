"""A fleet read from a real Prometheus that scrapes simulated exporters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gpumon.config.settings import Prometheus
from gpumon.fleet.fleet import HostOrigin, HostState, HostStatus, Owner
from gpumon.fleet.summary import HostJudge
from gpumon.host.process_host import Refused, Target
from gpumon.makers.source import Source
from gpumon.model.processes import ProcessId
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot, Unknown
from gpumon.prometheus import PrometheusFleet
from gpumon.prometheus import fleet as fleet_module
from gpumon.prometheus import fleet as polled_fleet
from gpumon.prometheus.client import PrometheusClient, read_endpoint
from gpumon.prometheus.poller import PrometheusPoller
from gpumon.prometheus.queries import Queries
from tests import lives
from tests.command import GPUMON, run_program
from tests.known import known
from tests.prometheus.exporters import DEFAULT_COUNTERS, Exporters, page, uuid
from tests.prometheus.server import (
    PrometheusServer,
    host_of,
    needs_prometheus,
    open_fleet,
    wait_for,
    wait_for_host,
)
from tests.screen import PATIENCE

pytestmark = [needs_prometheus, pytest.mark.slow]
MIB = 2**20


class Site:
    """A Prometheus, the exporters that it scrapes, and the fleet of it."""

    def __init__(self, folder: Path) -> None:
        self.pages: dict[str, str] = {}
        self.exporters = Exporters(lambda host: self.pages[host])
        self.prometheus = PrometheusServer(folder)
        self._fleet: PrometheusFleet | None = None

    def scrape(self, **jobs: str) -> None:
        self.prometheus.scrape(self.exporters.target(host, job) for host, job in jobs.items())

    def open(self, match: str = "", **pages: str) -> PrometheusFleet:
        """The fleet, once; these pages are those of hosts of the job ``dcgm``."""
        if pages:
            self.pages = pages
            self.scrape(**dict.fromkeys(pages, "dcgm"))
        self._fleet = open_fleet(self.prometheus.url, match)
        return self._fleet

    def live(self, **pages: str) -> tuple[PrometheusFleet, HostState]:
        """The fleet of hosts with these pages, and the first of them once it is live."""
        fleet = self.open(**pages)
        return fleet, wait_for_host(fleet, next(iter(pages)), is_live, "live")

    def close(self) -> None:
        if self._fleet is not None:
            self._fleet.close()
        self.prometheus.close()
        self.exporters.close()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(polled_fleet, "LEAST_INTERVAL", 1.0)
    made = Site(tmp_path)
    yield made
    made.close()


def is_live(host: HostState) -> bool:
    return host.status is HostStatus.LIVE and host.snapshot is not None


def is_down(host: HostState) -> bool:
    return host.status is HostStatus.DOWN


def has_power(gpu: Gpu) -> bool:
    """Of all hosts, power is not asked for."""
    return gpu.power_draw is not None


def sampled(source: Source, has_every_metric: Callable[[Gpu], bool] = has_power) -> Snapshot:
    """Open a source, and sample it until it has every metric."""
    source.open()
    deadline = time.monotonic() + PATIENCE
    while not has_every_metric((sample := source.sample()).gpus[0]):
        assert time.monotonic() < deadline, "every metric"
    return sample


def test_hosts_of_both_spellings_and_their_values(site: Site) -> None:
    """Also one without any label for the host; a blank of DCGM is unknown."""
    blank = {**DEFAULT_COUNTERS, "DCGM_FI_DEV_GPU_TEMP": 9223372036854775794}
    site.pages = {
        "gpu2": page("gpu2", {**DEFAULT_COUNTERS, "DCGM_FI_DEV_GPU_TEMP": 88}, gpus=2),
        "gpu10": page("gpu10", blank, gpus=1, label="hostname"),
        "smi": _SMI,
        "db": "# TYPE rows gauge\nrows 3\n",
    }
    site.scrape(gpu2="dcgm", gpu10="dcgm", smi="nvidia", db="other")
    fleet = site.open()
    wait_for(fleet, lambda now: sum(map(is_live, now.hosts)) == 3, "three hosts")
    # What changes seldom is asked apart, and may arrive later.
    wait_for(fleet, lambda now: known(now.hosts[0].snapshot).gpus[1].memory_free, "all values")
    latest = fleet.latest()
    assert [host.name for host in latest.hosts] == ["gpu2", "gpu10", "smi"]
    assert {host.origin for host in latest.hosts} == {HostOrigin.PROMETHEUS}
    first, second, third = (known(host.snapshot) for host in latest.hosts)
    assert [gpu.index for gpu in first.gpus] == [0, 1]
    gpu = first.gpus[1]
    assert (gpu.uuid, gpu.name) == (uuid("gpu2", 1), "NVIDIA H100 80GB HBM3")
    assert (gpu.memory_used, gpu.memory_free) == (41000 * MIB, 40000 * MIB)
    assert (gpu.memory_total, gpu.utilization_gpu, gpu.temperature_gpu) == (81000 * MIB, 91, 88)
    assert gpu.xid is None
    assert gpu.unknown["processes"] is Unknown.NOT_EXPORTED
    assert second.gpus[0].temperature_gpu is None
    assert second.gpus[0].utilization_gpu == 91
    card = third.gpus[0]
    assert (card.uuid, card.utilization_gpu) == (_SMI_UUID, 7)
    assert (card.memory_used, card.memory_total, card.index) == (706740224, 8589934592, 3)


_SMI_UUID = "GPU-df6e7a7c-7314-46f8-abc4-b88b36dcf3aa"
_SMI_INFO = 'name="NVIDIA GeForce RTX 2080 SUPER",driver_version="471.11",'
_SMI_VALUES = {
    "index": 3,
    "memory_used_bytes": 706740224,
    "memory_total_bytes": 8589934592,
    "utilization_gpu_ratio": 0.07,
    "temperature_gpu": 34,
    "power_draw_watts": 28.07,
    "clocks_current_sm_clock_hz": 1.6e9,
    "pstate": 8,
}
_SMI = f'nvidia_smi_gpu_info{{{_SMI_INFO}uuid="{_SMI_UUID[4:]}"}} 1\n' + "".join(
    f'nvidia_smi_{name}{{uuid="{_SMI_UUID[4:]}"}} {value}\n' for name, value in _SMI_VALUES.items()
)


def test_an_open_host_has_every_metric_and_a_past(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Snapshots of the last half hour are 15 s from each other, and a past needs time to pass.
    *older, (begin, end, _) = fleet_module.PAST_SPANS
    monkeypatch.setattr(fleet_module, "PAST_SPANS", (*older, (begin, end, 1.0)))
    profiled = {
        **DEFAULT_COUNTERS,
        "DCGM_FI_PROF_SM_ACTIVE": 0.084,
        "DCGM_FI_PROF_DRAM_ACTIVE": 1.0,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 1.7,
    }
    site.pages = {"gpu1": page("gpu1", profiled, gpus=2), "smi": _SMI}
    site.scrape(gpu1="dcgm", smi="nvidia")
    fleet = site.open()
    began = known(wait_for_host(fleet, "gpu1", is_live, "live").snapshot)
    assert not has_power(began.gpus[0])
    wait_for_host(fleet, "gpu1", lambda now: known(now.snapshot).time > began.time + 4, "4s")
    source = fleet.machine("gpu1").source
    sample = sampled(source)
    gpu = sample.gpus[0]
    assert (gpu.power_draw, gpu.clock_sm, gpu.energy) == (312.5, 1980, 123456.789)
    # DCGM's ratios are percent here.
    assert (gpu.sm_active, gpu.dram_active) == (8.4, 100.0)
    assert gpu.tensor_active is None
    assert gpu.remapped_rows_failure is False
    assert gpu.unknown["fan_speed"] is Unknown.NOT_EXPORTED
    past = list(source.past())
    assert past
    assert [one.time for one in past] == sorted({one.time for one in past})
    assert past[-1].time < sample.time
    assert past[0].gpus[0].power_draw == 312.5
    # Times never run backwards, as a history needs it.
    times = [source.sample().time for _ in range(8)]
    assert times == sorted(times)
    source.close()
    card = fleet.machine("smi").source
    sample = sampled(card)
    assert (sample.gpus[0].clock_sm, sample.gpus[0].pstate) == (1600, 8)
    assert sample.gpus[0].name == "NVIDIA GeForce RTX 2080 SUPER"
    assert sample.host.driver_version == "471.11"
    card.close()


def test_a_host_that_dies_keeps_its_values_and_comes_back(site: Site) -> None:
    fleet = site.open(gpu1=page("gpu1"), gpu2=page("gpu2"), gpu3=page("gpu3"))
    wait_for(fleet, lambda now: sum(map(is_live, now.hosts)) == 3, "three hosts")
    alive = site.pages.pop("gpu2")
    died_at = time.time()
    host = wait_for_host(fleet, "gpu2", is_down, "down when up is 0")
    assert "up is 0" in host.sentence
    assert len(known(host.snapshot).gpus) == 8
    # Since the last scrape, not since it was noticed.
    assert died_at - 10 < host.since <= died_at + 2
    others = [other for other in fleet.latest().hosts if other.name != "gpu2"]
    assert all(map(is_live, others))
    site.pages["gpu2"] = alive
    wait_for_host(fleet, "gpu2", is_live, "live again")


def test_hosts_that_were_down_before_the_start(site: Site) -> None:
    """One has told its name within the hour; another one never has."""
    site.pages = {"a": page("node-a"), "b": page("node-b"), "c": page("node-c")}
    site.scrape(a="dcgm", b="dcgm", c="dcgm", never="dcgm", web="other")
    before = open_fleet(site.prometheus.url)
    wait_for_host(before, "node-b", is_live, "live")
    before.close()
    del site.pages["b"]
    fleet = site.open()
    assert wait_for_host(fleet, "node-b", is_down, "down, by its own name").snapshot is not None
    assert wait_for_host(fleet, "never", is_down, "down").snapshot is None
    assert [one.name for one in fleet.latest().hosts] == ["never", "node-a", "node-b", "node-c"]
    # Once it answers, it has its own name.
    site.pages["never"] = page("node-d")
    wait_for_host(fleet, "node-d", is_live, "live by its name")
    wait_for(fleet, lambda now: host_of(now, "never") is None, "one line for one host")


def test_all_hosts_are_down(site: Site) -> None:
    site.pages = {"a": page("node-a")}
    site.scrape(a="dcgm")
    before = open_fleet(site.prometheus.url)
    wait_for_host(before, "node-a", is_live, "live")
    before.close()
    site.pages.clear()
    fleet = site.open()
    wait_for_host(fleet, "node-a", is_down, "down")


def test_who_has_the_gpus(site: Site) -> None:
    """Pods by either label and jobs; never the exporter's own pod.

    What each of several holds on one GPU is unknown, except in instances of it.
    """
    own = ',pod="metrics-x7",namespace="monitoring",container="nvidia-dcgm-exporter"'
    workload = f'{own},exported_pod="train-0",exported_namespace="ml",exported_container="main"'
    honored = ',pod="infer-1",namespace="ml",container="main"'
    fleet = site.open(
        a=page("a", gpus=2, more=workload),
        b=page("b", gpus=1, more=honored),
        c=page("c", gpus=1, more=own),
        d=page("d", gpus=1, more=',hpc_job="88123"'),
        e="".join(page("e", gpus=1, more=_pod(name)) for name in ("one", "two")),
        f=page("f", gpus=1, more=',hpc_job="7"') + page("f", gpus=2, more=',hpc_job="8"'),
        g="".join(
            page("g", gpus=1, more=f'{_pod(name)},GPU_I_ID="{number}",GPU_I_PROFILE="1g.10gb"')
            for name, number in (("one", 7), ("two", 8))
        ),
    )
    wait_for(fleet, lambda now: sum(map(is_live, now.hosts)) == 7, "seven hosts")
    owners = {host.name: host.owners for host in fleet.latest().hosts}
    assert owners == {
        "a": (Owner("ml/train-0", 2, 82000 * MIB),),
        "b": (Owner("ml/infer-1", 1, 41000 * MIB),),
        "c": (),
        "d": (Owner("slurm 88123", 1, 41000 * MIB),),
        "e": (Owner("ml/one", 1, None), Owner("ml/two", 1, None)),
        "f": (Owner("slurm 7", 1, None), Owner("slurm 8", 2, None)),
        "g": (Owner("ml/one", 1, 41000 * MIB), Owner("ml/two", 1, 41000 * MIB)),
    }


@pytest.mark.parametrize("question", range(1, 8))
def test_a_host_that_is_new_between_two_questions_is_whole(site: Site, question: int) -> None:
    values = {**DEFAULT_COUNTERS, "DCGM_FI_DEV_XID_ERRORS": 79.0}
    site.pages = {name: page(name, values, gpus=1, more=_pod(name)) for name in "ab"}
    site.scrape(a="dcgm")
    wait_for(site.open(), lambda now: any(map(is_live, now.hosts)), "the first host")
    client = PrometheusClient(read_endpoint(site.prometheus.url, Prometheus()))
    poller = PrometheusPoller(client, Queries(""))
    asked: list[int] = []

    def instances() -> set[str]:
        return {series.metric.instance for series in client.query(Queries("").memory_used())}

    def scrape() -> None:
        asked.append(1)
        if len(asked) == question:
            site.scrape(a="dcgm", b="dcgm")
            lives.until(lambda: len(instances()) == 2, "the second host")

    with closing(client):
        poller.read_all((), scrape)
    poller.judge("")
    assert {"a"} <= poller.hosts.keys() <= {"a", "b"}
    for name, host in poller.hosts.items():
        assert host.state.owners == (Owner(f"ml/{name}", 1, 41000 * MIB),)
        (gpu,) = known(host.state.snapshot).gpus
        assert (gpu.memory_used, gpu.xid) == (41000 * MIB, 79)


def test_an_exporter_has_no_gpu_whatever_the_name_of_its_pod(site: Site) -> None:
    """Unless told otherwise, Prometheus renames the label of the workload, and adds its own."""
    used, other = page("a", gpus=1, more=_pod("train-0")), page("a", gpus=2)
    site.pages = {"a": used + "".join(x for x in other.splitlines(True) if 'gpu="1"' in x)}
    own = {"pod": "agent-x7", "namespace": "monitoring", "container": "agent"}
    site.prometheus.scrape([site.exporters.target("a", "metrics", **own)])
    host = wait_for_host(site.open(), "a", is_live, "live")
    assert host.owners == (Owner("ml/train-0", 1, 41000 * MIB),)


def _pod(name: str) -> str:
    return f',pod="{name}",namespace="ml",container="main"'


def _labels(gpu: int) -> str:
    return f'gpu="{gpu}",UUID="{uuid("a", gpu)}",modelName="H100",Hostname="a"'


_UNSOUND = (48, 62, 79, 94, 95, 109, 119, 154, 999)
_SOUND = (0, 8, 13, 31, 43, 45, 63, 69)


def test_a_gpu_that_needs_a_reset_is_not_handed_out(site: Site) -> None:
    """Metrics have the last XID until the GPU is reset, and do not have its time."""
    empty = {"DCGM_FI_DEV_GPU_UTIL": 0.0, "DCGM_FI_DEV_FB_USED": 4.0, "DCGM_FI_DEV_FB_FREE": 8e4}
    xids = (*_UNSOUND, *_SOUND)
    series = page("a", empty, gpus=len(xids) + 4)
    for gpu, xid in enumerate(xids):
        series += f"DCGM_FI_DEV_XID_ERRORS{{{_labels(gpu)}}} {xid}\n"
    # In MIG mode the series is that of an instance.
    labels = _labels(len(xids))
    series += f'DCGM_FI_DEV_XID_ERRORS{{{labels},GPU_I_ID="7"}} 79\n'
    # Some sites have only the counts of dcgm-exporter, by XID.
    for gpu, (xid, seen) in enumerate(((79, 1), (79, 0), (31, 1)), len(xids) + 1):
        series += f'DCGM_EXP_XID_ERRORS_COUNT{{{_labels(gpu)},xid="{xid}"}} {seen}\n'
    _, host = site.live(a=series)
    free = {gpu.index for gpu in HostJudge(0).judge(host).gpus if gpu.free}
    sound = {*range(len(_UNSOUND), len(xids)), len(xids) + 2, len(xids) + 3}
    assert free == sound
    selecting = [*GPUMON, "select", "--prometheus", site.prometheus.url]
    for more in ([], ["--free", "1G"]):
        arguments = [*selecting, "--verbose", "-n", str(len(sound) + 1), *more]
        told = run_program(arguments).stderr
        assert "XID 79 at an unknown time: the GPU fell off the bus" in told
        assert f"only {len(sound)} GPUs fit" in told


def test_of_several_series_of_a_gpu_the_gravest_counts_on_its_page_too(site: Site) -> None:
    """Another GPU with the same number gets one of its own."""
    idle = {"DCGM_FI_DEV_FB_USED": 4.0, "DCGM_FI_DEV_FB_FREE": 8e4, "DCGM_FI_DEV_POWER_USAGE": 15.0}
    series = page("a", idle, gpus=2)
    series += page("a", idle, gpus=1).replace(uuid("a", 0), "GPU-other")
    for pod, xid in (("a", 0), ("b", 79), ("c", 31), ("d", 0)):
        series += f"DCGM_FI_DEV_XID_ERRORS{{{_labels(0)}{_pod(pod)}}} {xid}\n"
    fleet, _ = site.live(a=series)
    source = fleet.machine("a").source
    sample = sampled(source)
    source.close()
    xids = {gpu.uuid: gpu.xid for gpu in sample.gpus}
    assert xids == {uuid("a", 0): 79, uuid("a", 1): None, "GPU-other": None}
    assert [gpu.index for gpu in sample.gpus] == [0, 1, 2]


def test_a_gpu_that_its_exporter_leaves_out_does_not_answer(site: Site) -> None:
    fleet, _ = site.live(a=page("a", gpus=3))
    lines = page("a", gpus=3).splitlines(keepends=True)
    site.pages["a"] = "".join(line for line in lines if 'gpu="1"' not in line)
    host = wait_for_host(fleet, "a", lambda now: 1 not in _answering(now), "a GPU without metrics")
    gpus = known(host.snapshot).gpus
    assert [(gpu.uuid, gpu.status) for gpu in gpus] == [
        (uuid("a", 0), GpuStatus.OK),
        (uuid("a", 1), GpuStatus.NO_ANSWER),
        (uuid("a", 2), GpuStatus.OK),
    ]
    gpu = gpus[1]
    assert (gpu.name, gpu.memory_used) == ("NVIDIA H100 80GB HBM3", None)
    assert gpu.unknown["memory_used"] is Unknown.NO_ANSWER
    assert gpu.status_since is not None
    site.pages["a"] = page("a", gpus=3)
    wait_for_host(fleet, "a", lambda now: _answering(now) == {0, 1, 2}, "its metrics again")


def _answering(host: HostState) -> set[int]:
    gpus = () if host.snapshot is None else host.snapshot.gpus
    return {gpu.index for gpu in gpus if gpu.status is GpuStatus.OK}


def test_mig_instances(site: Site) -> None:
    lines = []
    for instance, used in ((1, 4000), (13, 0)):
        for name, value in (
            ("DEV_FB_USED", used),
            ("DEV_FB_FREE", 9000 - used),
            ("DEV_GPU_TEMP", 40),
            ("PROF_SM_ACTIVE", used / 1e5),
        ):
            lines.append(
                f'DCGM_FI_{name}{{gpu="0",UUID="GPU-1",modelName="H100",Hostname="m",'
                f'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{instance}"}} {value}'
            )
    fleet, host = site.live(m="\n".join(lines) + "\n")
    (gpu,) = known(host.snapshot).gpus
    assert gpu.mig_mode
    found = [(one.gpu_instance, one.profile, one.memory_used, one.memory_total) for one in gpu.mig]
    assert found == [(1, "1g.10gb", 4000 * MIB, 9000 * MIB), (13, "1g.10gb", 0, 9000 * MIB)]
    source = fleet.machine("m").source
    sample = sampled(source, lambda gpu: gpu.mig[0].sm_active is not None)
    assert [one.sm_active for one in sample.gpus[0].mig] == [4.0, 0.0]
    source.close()


def test_only_matching_metrics(site: Site) -> None:
    fleet = site.open('{Hostname=~"a|x"}', a=page("a"), b=page("b"))
    wait_for_host(fleet, "a", is_live, "live")
    assert [host.name for host in fleet.latest().hosts] == ["a"]


def test_no_signal_is_sent(site: Site) -> None:
    fleet, _ = site.live(a=page("a"))
    with pytest.raises(Refused, match="known from Prometheus only"):
        fleet.machine("a", readonly=False).processes.open_handle(Target(ProcessId(1, 1), 0))
    with pytest.raises(KeyError):
        fleet.machine("b")


def test_prometheus_is_restarted(site: Site) -> None:
    fleet, host = site.live(a=page("a"), b=page("b"))
    site.prometheus.close()
    time.sleep(8)
    # Its values are still young; nothing else is known to be wrong.
    assert is_live(host_of(fleet.latest(), "a") or host)
    site.prometheus.start()
    stopped_at = time.time()
    wait_for_host(fleet, "a", lambda now: known(now.snapshot).time > stopped_at, "newer")


def test_hostile_labels_reach_nobody(site: Site) -> None:
    """Escapes in names are made visible, and quotes do not end a query."""
    name = 'g\x1b[31m"}\\\\ or vector(1)'.replace('"', '\\"')
    fleet = site.open(a=page(name, gpus=1))
    wait_for(fleet, lambda now: sum(map(is_live, now.hosts)) == 1, "the host")
    host = fleet.latest().hosts[0]
    assert host.name.isprintable()
    source = fleet.machine(host.name).source
    sampled(source)
    source.close()
