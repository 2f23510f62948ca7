"""Hosts behind real sshds: what is known of each, whatever becomes of it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from gpumon.fleet.fleet import HostOrigin, HostState, HostStatus
from gpumon.host.process_host import Refused, target_of
from gpumon.model.snapshot import GpuStatus, Host, Snapshot
from gpumon.sampling.collector import Collector
from tests.driver import GIB, Driver, Owner, h100, owners, rtx4090
from tests.fleet.conftest import (
    STREAMER,
    all_live,
    brief,
    children,
    environment,
    faulty,
    reading,
    state,
    wait_down,
    wait_for,
    wait_until,
)
from tests.fleet.sshd import Lab, make_key
from tests.known import known


def test_every_host_has_its_own_gpus_and_processes(lab: Lab) -> None:
    with (
        Driver([h100()] * 2) as first,
        Driver([rtx4090()]) as second,
        owners(1, ["python", "train.py"]) as (owner,),
    ):
        first.cards[1].memory_used = 40 * GIB
        first.cards[1].processes = [Owner(owner.pid, memory=40 * GIB, sm=90)]
        lab.host("gpu-01", environment(first))
        lab.host("gpu-02", environment(second))
        with reading(lab.client, "gpu-01", "gpu-02") as fleet:
            one, two = wait_for(fleet, all_live).hosts
            first_snapshot = known(one.snapshot)
            assert [gpu.memory_used for gpu in first_snapshot.gpus] == [0, 40 * GIB]
            assert [gpu.name for gpu in known(two.snapshot).gpus] == ["NVIDIA GeForce RTX 4090"]
            (process,) = first_snapshot.processes
            assert (process.id.pid, process.command) == (owner.pid, ("python", "train.py"))
            assert (one.origin, one.sentence) == (HostOrigin.GPUMON, "")
            assert one.version is not None
            # What changes there is seen here.
            second.cards[0].temperature = 77
            wait_for(fleet, lambda now: known(now.hosts[1].snapshot).gpus[0].temperature_gpu == 77)


@pytest.mark.slow
def test_a_host_that_dies_comes_back_and_the_others_go_on(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment())
    lab.host("gpu-02", environment())
    commands = {"gpu-01": STREAMER, "gpu-02": STREAMER}
    with reading(lab.client, *commands, commands=commands) as fleet:
        wait_for(fleet, all_live)
        sshd.stop()
        down = wait_down(fleet)
        assert down.sentence
        assert down.snapshot is not None
        received = state(fleet, "gpu-02").received_at or 0

        def goes_on(other: HostState) -> bool:
            return other.status is HostStatus.LIVE and known(other.received_at) > received + 1

        wait_for(fleet, lambda now: goes_on(now.hosts[1]))
        sshd.start()
        wait_for(fleet, all_live)
        assert state(fleet, "gpu-01").since > down.since
        assert state(fleet, "gpu-01").sentence == ""


def test_a_host_that_is_down_at_first_says_why_and_is_connected_when_it_is_up(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment(), running=False)
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        down = wait_down(fleet)
        assert "refuses connections" in down.sentence
        assert down.snapshot is None
        source = fleet.machine("gpu-01").source
        source.open()
        assert "refuses connections" in known(source.sample().trouble).sentence
        source.close()
        with pytest.raises(KeyError):
            fleet.machine("gpu-02")
        sshd.start()
        wait_for(fleet, all_live)


@pytest.mark.slow
def test_a_killed_gpumon_there_is_started_again(lab: Lab) -> None:
    with Driver([h100()]) as driver:
        sshd = lab.host("gpu-01", environment(driver))
        with reading(lab.client, "gpu-01") as fleet:
            wait_for(fleet, all_live)
            since = state(fleet, "gpu-01").since
            wait_until(lambda: bool(sshd.running("stream")))
            (gpumon,) = sshd.running("stream")
            gpumon.kill()
            # It is tried again after a second.
            assert "gpumon was killed there" in wait_down(fleet).sentence
            wait_for(fleet, lambda now: all_live(now) and now.hosts[0].since > since)


@pytest.mark.slow
def test_a_frozen_gpumon_there_is_silent_and_live_again_when_it_goes_on(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment())
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        wait_for(fleet, all_live)
        wait_for(fleet, lambda now: (now.hosts[0].received_at or 0) > now.hosts[0].since + 2)
        (gpumon,) = sshd.running("stream")
        gpumon.suspend()
        silent = wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.SILENT).hosts[0]
        assert silent.snapshot is not None
        # It is silent since its last line.
        assert abs(silent.since - (silent.received_at or 0)) < 1
        gpumon.resume()
        wait_for(fleet, all_live)


FAULTS = {
    "garbage": "",
    "gigabyte": "",
    "errors": "more than gpumon reads: 1 MiB a second",
    "expands": "more than gpumon reads: 4 MiB a second before compression",
    "end": "gpumon ended there: the driver �[31mis gone",
}
"""What a host may do wrong, and a part of what is said then."""


NOTHING = Snapshot(0.0, Host(""))


@pytest.mark.slow
def test_a_host_that_misbehaves_is_told_in_a_sentence_and_nobody_waits(lab: Lab) -> None:
    lab.host("good", environment(), also=" ".join(FAULTS))
    commands = {"good": STREAMER, **{fault: faulty(fault) for fault in FAULTS}}
    with reading(lab.client, "good", *FAULTS, commands=commands) as fleet:
        for place, (fault, said) in enumerate(FAULTS.items(), 1):
            sentence = wait_down(fleet, place).sentence
            assert said in sentence, fault
            assert sentence.isprintable(), fault
            assert len(sentence) < 300, fault
        received = state(fleet, "good").received_at or 0
        wait_for(fleet, lambda now: (now.hosts[0].received_at or 0) > received)


def test_a_host_that_says_the_same_thousands_of_times_holds_up_nobody(lab: Lab) -> None:
    lab.host("good", environment(), also="bad")
    commands = {"good": STREAMER, "bad": faulty("repeats")}
    with reading(lab.client, "good", "bad", commands=commands) as fleet:
        wait_for(fleet, lambda now: len((now.hosts[1].snapshot or NOTHING).gpus) == 250)
        received = state(fleet, "good").received_at or 0
        wait_for(fleet, lambda now: (now.hosts[0].received_at or 0) > received + 1)


def test_half_a_line_is_silence_and_holds_up_nobody(lab: Lab) -> None:
    lab.host("good", environment(), also="bad")
    commands = {"good": STREAMER, "bad": faulty("half")}
    with reading(lab.client, "good", "bad", commands=commands) as fleet:
        both = [HostStatus.LIVE, HostStatus.SILENT]
        wait_for(fleet, lambda now: [host.status for host in now.hosts] == both)


def test_a_login_that_writes_first_does_no_harm(lab: Lab) -> None:
    noisy = "echo Welcome to gpu-01; echo; sh -c"
    options = [f'ForceCommand {noisy} "$SSH_ORIGINAL_COMMAND"', "Banner none"]
    lab.host("gpu-01", environment(), options)
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        wait_for(fleet, all_live)


def test_a_login_that_writes_without_end_is_told(lab: Lab) -> None:
    lab.host("gpu-01", environment(), ["ForceCommand yes"])
    with reading(lab.client, "gpu-01") as fleet:
        assert "login files" in wait_down(fleet).sentence


def _changed_key(lab: Lab) -> None:
    other = lab.folder / "other"
    make_key(other)
    key = (lab.folder / "other.pub").read_text()
    (lab.folder / "known_hosts").write_text(f"gpu-01 {key}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "options", "said"),
    [
        (lambda lab: make_key(lab.folder / "key"), (), "refuses every key"),
        (
            lambda lab: (lab.folder / "authorized_keys").write_text(""),
            ("PasswordAuthentication yes",),
            "wants a password",
        ),
        (_changed_key, (), "host key has changed"),
        (lambda lab: (lab.folder / "known_hosts").write_text(""), (), "host key is not known"),
    ],
    ids=["wrong key", "password", "changed key", "unknown key"],
)
def test_what_ssh_refuses_is_told_with_what_to_do(
    lab: Lab, spoil: Callable[[Lab], object], options: tuple[str, ...], said: str
) -> None:
    lab.host("gpu-01", environment(), options)
    spoil(lab)
    with reading(lab.client, "gpu-01") as fleet:
        assert said in wait_down(fleet).sentence


def test_without_gpumon_and_nvidia_smi_a_sentence_says_so(lab: Lab) -> None:
    lab.host("gpu-01", {"PATH": "/usr/bin:/bin"})
    with reading(lab.client, "gpu-01", "nowhere.invalid") as fleet:
        assert "neither gpumon nor nvidia-smi" in wait_down(fleet).sentence
        assert "cannot be resolved" in wait_down(fleet, 1).sentence


@pytest.mark.slow
def test_a_host_without_a_driver_says_so(lab: Lab) -> None:
    lab.host("gpu-01", environment())
    with reading(lab.client, "gpu-01") as fleet:
        down = wait_down(fleet)
        assert f"{down.sentence}." == known(known(down.snapshot).trouble).sentence


def test_a_source_of_a_host_shows_its_age_while_it_is_down(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment())
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        taken: list[Snapshot] = []
        collector = Collector(fleet.machine("gpu-01").source, 0.2)
        collector.subscribe(taken.append)
        collector.start()
        try:
            wait_until(lambda: bool(taken) and taken[-1].trouble is None)
            assert taken[-1].host.name == "gpu-01"
            before = taken[-1].gpus[0].sampled_at
            sshd.stop()
            wait_until(lambda: taken[-1].gpus[0].status is GpuStatus.NO_ANSWER)
            assert before is not None
            wait_until(lambda: taken[-1].time - known(taken[-1].gpus[0].sampled_at) > 1)
            sshd.start()
            wait_until(lambda: taken[-1].gpus[0].status is GpuStatus.OK)
        finally:
            collector.stop()
        times = [snapshot.time for snapshot in taken]
        assert times == sorted(times)


@pytest.mark.slow
def test_times_of_a_host_are_of_this_clock(lab: Lab) -> None:
    lab.host("gpu-01", environment(), also="ahead behind")
    commands = {
        "gpu-01": STREAMER,
        "ahead": f"env STREAMER_CLOCK=86400 {STREAMER}",
        "behind": f"env STREAMER_CLOCK=-86400 {STREAMER}",
    }
    with reading(lab.client, *commands, commands=commands) as fleet:
        for host in wait_for(fleet, all_live).hosts:
            snapshot = known(host.snapshot)
            # Far less than the day by which the clocks differ.
            assert abs(snapshot.time - time.time()) < 60, brief([host])
            assert abs(known(snapshot.gpus[0].sampled_at) - time.time()) < 60


@pytest.mark.slow
def test_a_process_of_a_host_is_ended_there(lab: Lab) -> None:
    with Driver([h100()]) as driver, owners(1, ["python", "train.py"]) as (owner,):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB, sm=90)]
        lab.host("gpu-01", environment(driver))
        with reading(lab.client, "gpu-01") as fleet:
            wait_for(fleet, all_live)
            snapshot = known(state(fleet, "gpu-01").snapshot)
            target = target_of(snapshot.processes[0])
            with pytest.raises(Refused, match="readonly"):
                fleet.machine("gpu-01", readonly=True).processes.open_handle(target)
            handle = fleet.machine("gpu-01", readonly=False).processes.open_handle(target)
            handle.send(signal.SIGTERM)
            wait_until(handle.ended)
            handle.close()
        assert owner.wait(60) == -signal.SIGTERM
        assert children() == []
