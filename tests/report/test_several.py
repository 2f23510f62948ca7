"""Reports on logs of several hosts: those of logs of their own, and those of pandas."""

from __future__ import annotations

import random
from pathlib import Path

import pandas as pd
import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Snapshot
from gpumon.report.figures import BY
from tests.build import NOON, gpu, process, snapshot
from tests.recording.csv.several import of_host, ticks, write_several
from tests.report.logs import printed, refused, report, write_log
from tests.report.witness import Witness

HOSTS = ("gpu-01", "gpu-02", "gpu-10")


def night(seed: int) -> list[dict[str, Snapshot]]:
    """Hosts with the same UUIDs, users and PIDs, each of which is away for a while."""
    dice = random.Random(seed)
    away = {host: range(begin := 40 + 90 * number, begin + 60) for number, host in enumerate(HOSTS)}
    found = []
    for second in range(400):
        tick = {}
        for number, host in enumerate(HOSTS):
            if second in away[host]:
                continue
            cards = tuple(
                gpu(
                    index=index,
                    utilization_gpu=dice.choice((None, 0, 30, 99)),
                    memory_used=dice.choice((None, dice.randrange(80 * 2**30))),
                    power_draw=dice.choice((None, 100.0 * (number + 1))),
                    energy=None if index else 1e6 + 250.0 * second,
                    clock_event_reasons=dice.choice((None, 0, 4, 0x20, 0x80)),
                )
                for index in range(number + 1)
            )
            users = {100: "ann", 101: "bo"}
            listed = tuple(
                process(pid, user=user, gpus=tuple(range(number + 1)), sm=dice.randrange(50))
                for pid, user in users.items()
                if second % (100 + pid) > 20 * number
            )
            taken = snapshot(NOON + second, *cards, processes=listed)
            tick[host] = replace(taken, host=replace(taken.host, name=host))
        found.append(tick)
    return found


@pytest.fixture(scope="module", params=range(2))
def logs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[Path]]:
    """A log of several hosts, and the logs of each of them; tests only read them."""
    folder, taken = tmp_path_factory.mktemp("logs"), night(request.param)
    apart = [
        write_log(
            folder / f"{host}.csv",
            [(tick[host], tick[host].time - NOON) for tick in taken if host in tick],
        )
        for host in HOSTS
    ]
    return write_several(folder / "run.csv", taken), apart


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
def test_hosts_in_one_log_have_the_figures_of_logs_of_their_own(
    logs: tuple[Path, list[Path]], by: str
) -> None:
    path, apart = logs
    together, of_each = report(path, by=by), report(*apart, by=by)
    assert {line["host"] for line in together["lines"]} == set(HOSTS)
    assert together["lines"] == of_each["lines"]
    assert together["total"] == of_each["total"]


def test_the_figures_of_a_host_are_those_of_pandas(tmp_path: Path) -> None:
    path = write_several(tmp_path / "run.csv", night(7))
    told = {line["host"]: line for line in report(path, by="host")["lines"]}
    cards = pd.read_csv(path)
    assert list(cards.columns)[-1] == "hostname"
    for host, own in cards.groupby("hostname"):
        line = told[str(host)]
        own.to_csv(tmp_path / "own.csv", index=False)
        witness = Witness(tmp_path / "own.csv")
        each = [witness.card(index) for index in sorted(own["index"].unique())]
        assert line["gpus"] == ",".join(str(index) for index in range(len(each)))
        for key in ("busy_hours", "energy_kwh", "heat_hours", "power_brake_hours"):
            assert line[key] == pytest.approx(sum(one[key] for one in each), abs=2e-6), key
        assert line["present_hours"] == pytest.approx(each[0]["covered_hours"], abs=2e-6)
        assert (line["gaps"], line["gap_hours"] * 3600) == (1, pytest.approx(58.5, abs=0.01))
        # Together on all GPUs, where that of each is known.
        memory = own.groupby("timestamp")["memory.used [MiB]"]
        whole = memory.sum()[memory.count() == memory.size()]
        assert line["memory_peak_bytes"] == pytest.approx(whole.max() * 2**20, abs=1)
        samples = own["utilization.gpu [%]"].notna()
        assert line["utilization_known"] == pytest.approx(samples.mean(), abs=0.02)


@pytest.fixture
def minute(tmp_path: Path) -> Path:
    """A log of a minute of each host."""
    return write_several(tmp_path / "run.csv", ticks(dict.fromkeys(HOSTS, range(60)), range(60)))


def test_one_user_on_two_hosts_has_a_line_for_each(minute: Path) -> None:
    lines = report(minute, by="user")["lines"]
    assert [(line["host"], line["user"], line["processes"]) for line in lines] == [
        (host, "ann", 1) for host in HOSTS
    ]
    uses = [of_host(host, 0).processes[0].uses for host in HOSTS]
    expected = [sum(use.memory_used or 0 for use in of_each) for of_each in uses]
    assert [line["memory_peak_bytes"] for line in lines] == expected


def test_a_report_of_some_hosts_has_no_others(minute: Path) -> None:
    some = frozenset(("gpu-02", "gpu-10"))
    assert {line["host"] for line in report(minute, by="gpu", hosts=some)["lines"]} == some
    said = "no sample of gpu-9 in that time, only of gpu-01, gpu-02, gpu-10."
    assert said in refused(minute, hosts=frozenset(("gpu-9",)))


def test_the_table_has_a_line_for_each_host_and_the_sum(tmp_path: Path) -> None:
    path = write_several(tmp_path / "run.csv", night(1))
    shown = printed(path, by="host", width=160).splitlines()
    assert shown[1].split()[:3] == ["HOST", "GPU", "COVERED"]
    assert [line.split()[0] for line in shown[2:5]] == list(HOSTS)
    assert shown[6].startswith("all ")
    assert max(map(len, shown)) <= 160


def test_a_row_that_lost_its_host_counts_for_none(tmp_path: Path) -> None:
    path = write_several(tmp_path / "run.csv", night(3))
    whole = report(path, by="gpu")["lines"]
    rows = path.read_bytes().split(b"\n")
    torn = 0
    for number, row in enumerate(rows):
        # Only gpu-10 has a third GPU.
        if row.endswith(b",gpu-10") and row.split(b",")[1] == b"2" and number % 20 == 0:
            rows[number] = row[: -9 + number % 3]
            torn += 1
    assert torn > 5
    path.write_bytes(b"\n".join(rows))
    told = report(path, by="gpu")
    assert [(line["host"], line["index"]) for line in told["lines"]] == [
        (line["host"], line["index"]) for line in whole
    ]
    # A sample that is missing leaves no gap.
    for line, before in zip(told["lines"], whole, strict=True):
        assert line["covered_hours"] == pytest.approx(before["covered_hours"], abs=1e-3)
    assert any(f"{torn} damaged lines" in note for note in told["notes"])


@pytest.mark.slow
def test_the_usual_interval_is_that_of_the_log_however_many_hosts_it_has(tmp_path: Path) -> None:
    many = [f"gpu-{number:02}" for number in range(30)]
    path = write_several(tmp_path / "run.csv", ticks(dict.fromkeys(many, range(60)), range(60)))
    lines = report(path, by="host")["lines"]
    assert [line["host"] for line in lines] == many
    for line in lines:
        assert line["present_hours"] * 3600 == pytest.approx(59, abs=0.01)
        assert line["gaps"] == 0
    heading = printed(path, by="host", width=100).splitlines()[0]
    assert heading.startswith("run.csv  30 hosts  2023-11-14 ")
