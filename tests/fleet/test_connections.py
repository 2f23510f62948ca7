"""Hosts behind real sshds: what is known of each, whatever becomes of it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.host.process_host import Refused, target_of
from gpumon.model.snapshot import GpuStatus
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
    wait_for,
    wait_until,
)
from tests.fleet.sshd import make_key

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu, Snapshot
    from tests.fleet.sshd import Lab


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
            assert one.snapshot is not None
            assert two.snapshot is not None
            assert [gpu.memory_used for gpu in one.snapshot.gpus] == [0, 40 * GIB]
            assert [gpu.name for gpu in two.snapshot.gpus] == ["NVIDIA GeForce RTX 4090"]
            (process,) = one.snapshot.processes
            assert (process.id.pid, process.command) == (owner.pid, ("python", "train.py"))
            assert (one.origin, one.sentence) == (HostOrigin.GPUMON, "")
            assert one.version is not None
            # What changes there is seen here.
            second.cards[0].temperature = 77
            wait_for(
                fleet,
                lambda now: (
                    [gpu.temperature_gpu for host in now.hosts[1:] for gpu in _gpus(host.snapshot)]
                    == [77]
                ),
            )


def _gpus(snapshot: Snapshot | None) -> tuple[Gpu, ...]:
    return () if snapshot is None else snapshot.gpus


@pytest.mark.slow
def test_a_host_that_dies_comes_back_and_the_others_go_on(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment())
    lab.host("gpu-02", environment())
    commands = {"gpu-01": STREAMER, "gpu-02": STREAMER}
    with reading(lab.client, "gpu-01", "gpu-02", commands=commands) as fleet:
        wait_for(fleet, all_live)
        sshd.stop()
        down = wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN).hosts[0]
        assert down.sentence
        assert down.snapshot is not None
        received = state(fleet, "gpu-02").received_at or 0
        wait_for(
            fleet,
            lambda now: (
                (now.hosts[1].received_at or 0) > received + 1
                and now.hosts[1].status is HostStatus.LIVE
            ),
        )
        sshd.start()
        wait_for(fleet, all_live)
        assert state(fleet, "gpu-01").since > down.since
        assert state(fleet, "gpu-01").sentence == ""


def test_a_host_that_is_down_at_first_is_connected_when_it_is_up(lab: Lab) -> None:
    sshd = lab.host("gpu-01", environment(), running=False)
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN)
        assert "refuses connections" in state(fleet, "gpu-01").sentence
        assert state(fleet, "gpu-01").snapshot is None
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
            down = wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN).hosts[0]
            assert "gpumon was killed there" in down.sentence
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


@pytest.mark.slow
def test_a_host_that_misbehaves_is_told_in_a_sentence_and_nobody_waits(lab: Lab) -> None:
    lab.host("good", environment(), also=" ".join(FAULTS))
    commands = {"good": STREAMER, **{fault: faulty(fault) for fault in FAULTS}}
    with reading(lab.client, "good", *FAULTS, commands=commands) as fleet:
        bad = {
            fault: wait_for(
                fleet,
                lambda now, place=place: now.hosts[place].status is HostStatus.DOWN,  # type: ignore[misc]  # a default binds the value
            ).hosts[place]
            for place, fault in enumerate(FAULTS, 1)
        }
        for fault, said in FAULTS.items():
            sentence = bad[fault].sentence
            assert said in sentence, fault
            assert sentence.isprintable(), fault
            assert "\x1b" not in sentence, fault
            assert len(sentence) < 300, fault
        received = state(fleet, "good").received_at or 0
        wait_for(fleet, lambda now: (now.hosts[0].received_at or 0) > received)


def test_a_host_that_says_the_same_thousands_of_times_holds_up_nobody(lab: Lab) -> None:
    lab.host("good", environment(), also="bad")
    commands = {"good": STREAMER, "bad": faulty("repeats")}
    with reading(lab.client, "good", "bad", commands=commands) as fleet:
        wait_for(fleet, lambda now: len(_gpus(now.hosts[1].snapshot)) == 250)
        received = state(fleet, "good").received_at or 0
        wait_for(fleet, lambda now: (now.hosts[0].received_at or 0) > received + 1)


def test_half_a_line_is_silence_and_holds_up_nobody(lab: Lab) -> None:
    lab.host("good", environment(), also="bad")
    commands = {"good": STREAMER, "bad": faulty("half")}
    with reading(lab.client, "good", "bad", commands=commands) as fleet:
        wait_for(
            fleet,
            lambda now: [host.status for host in now.hosts] == [HostStatus.LIVE, HostStatus.SILENT],
        )


def test_a_login_that_writes_first_does_no_harm(lab: Lab) -> None:
    noisy = "echo Welcome to gpu-01; echo; sh -c"
    sshd = lab.host(
        "gpu-01", environment(), [f'ForceCommand {noisy} "$SSH_ORIGINAL_COMMAND"', "Banner none"]
    )
    del sshd
    with reading(lab.client, "gpu-01", commands={"gpu-01": STREAMER}) as fleet:
        wait_for(fleet, all_live)


def test_a_login_that_writes_without_end_is_told(lab: Lab) -> None:
    lab.host("gpu-01", environment(), ["ForceCommand yes"])
    with reading(lab.client, "gpu-01") as fleet:
        wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN)
        assert "login files" in state(fleet, "gpu-01").sentence


def _wrong_key(lab: Lab) -> None:
    make_key(lab.folder / "key")


def _wants_password(lab: Lab) -> None:
    (lab.folder / "authorized_keys").write_text("")


def _changed_key(lab: Lab) -> None:
    other = lab.folder / "other"
    make_key(other)
    key = (lab.folder / "other.pub").read_text()
    (lab.folder / "known_hosts").write_text(f"gpu-01 {key}")


def _unknown_key(lab: Lab) -> None:
    (lab.folder / "known_hosts").write_text("")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "options", "said"),
    [
        (_wrong_key, (), "refuses every key"),
        (_wants_password, ("PasswordAuthentication yes",), "wants a password"),
        (_changed_key, (), "host key has changed"),
        (_unknown_key, (), "host key is not known"),
    ],
)
def test_what_ssh_refuses_is_told_with_what_to_do(
    lab: Lab, spoil: object, options: tuple[str, ...], said: str
) -> None:
    assert callable(spoil)
    lab.host("gpu-01", environment(), options)
    spoil(lab)
    with reading(lab.client, "gpu-01") as fleet:
        wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN)
        assert said in state(fleet, "gpu-01").sentence


def test_without_gpumon_and_nvidia_smi_a_sentence_says_so(lab: Lab) -> None:
    lab.host("gpu-01", {"PATH": "/usr/bin:/bin"})
    with reading(lab.client, "gpu-01", "nowhere.invalid") as fleet:
        wait_for(fleet, lambda now: all(host.status is HostStatus.DOWN for host in now.hosts))
        assert "neither gpumon nor nvidia-smi" in state(fleet, "gpu-01").sentence
        assert "cannot be resolved" in state(fleet, "nowhere.invalid").sentence


@pytest.mark.slow
def test_a_host_without_a_driver_says_so(lab: Lab) -> None:
    lab.host("gpu-01", environment())
    with reading(lab.client, "gpu-01") as fleet:
        wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN)
        told = state(fleet, "gpu-01")
        assert told.snapshot is not None
        assert told.snapshot.trouble is not None
        assert f"{told.sentence}." == told.snapshot.trouble.sentence


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
            assert taken[-1].gpus[0].sampled_at is not None
            assert before is not None
            wait_until(lambda: taken[-1].time - (taken[-1].gpus[0].sampled_at or 0) > 1)
            sshd.start()
            wait_until(lambda: taken[-1].gpus[0].status is GpuStatus.OK)
        finally:
            collector.stop()
        times = [snapshot.time for snapshot in taken]
        assert times == sorted(times)


def test_a_source_of_a_host_that_never_answered_says_why(lab: Lab) -> None:
    lab.host("gpu-01", running=False)
    with reading(lab.client, "gpu-01") as fleet:
        source = fleet.machine("gpu-01").source
        source.open()
        wait_for(fleet, lambda now: now.hosts[0].status is HostStatus.DOWN)
        trouble = source.sample().trouble
        source.close()
        assert trouble is not None
        assert "refuses connections" in trouble.sentence
        with pytest.raises(KeyError):
            fleet.machine("gpu-02")


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
            assert host.snapshot is not None
            # Far less than the day by which the clocks differ.
            assert abs(host.snapshot.time - time.time()) < 60, brief([host])
            assert abs((host.snapshot.gpus[0].sampled_at or 0) - time.time()) < 60


@pytest.mark.slow
def test_a_process_of_a_host_is_ended_there(lab: Lab) -> None:
    with (
        Driver([h100()]) as driver,
        owners(1, ["python", "train.py"]) as (owner,),
    ):
        driver.cards[0].processes = [Owner(owner.pid, memory=GIB, sm=90)]
        lab.host("gpu-01", environment(driver))
        with reading(lab.client, "gpu-01") as fleet:
            wait_for(fleet, all_live)
            snapshot = state(fleet, "gpu-01").snapshot
            assert snapshot is not None
            target = target_of(snapshot.processes[0])
            with pytest.raises(Refused, match="readonly"):
                fleet.machine("gpu-01", readonly=True).processes.open_handle(target)
            handle = fleet.machine("gpu-01", readonly=False).processes.open_handle(target)
            handle.send(signal.SIGTERM)
            wait_until(handle.ended)
            handle.close()
        assert owner.wait(60) == -signal.SIGTERM
        assert children() == []
