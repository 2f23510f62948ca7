"""A host without gpumon: what its nvidia-smi and ``ps`` say."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.fleet.fleet import HostOrigin, HostStatus
from gpumon.fleet.nvidia_smi import SmiReader
from gpumon.host.process_host import Refused, target_of
from gpumon.model.snapshot import GpuStatus, Unknown
from gpumon.stream import StreamError
from tests.command import write_program
from tests.driver import GIB, MIB, owners
from tests.fleet.conftest import (
    ROOT,
    STREAMER,
    all_live,
    reading,
    state,
    wait_down,
    wait_for,
    wait_until,
)
from tests.fleet.sshd import Lab
from tests.known import known

HEADER = (
    "timestamp, index, uuid, name, driver_version, memory.total [MiB], memory.used [MiB], "
    "memory.free [MiB], utilization.gpu [%], power.draw [W], fan.speed [%]"
)
ROW = (
    "2026/11/23 08:30:00.123, 0, GPU-a, NVIDIA H100 80GB HBM3, 570.1, 81559, 512, 81047, 93, "
    "512.33, [N/A]"
)
LOST = "2026/11/23 08:30:00.125, 1, GPU-b, NVIDIA H100 80GB HBM3, 570.1" + ", [GPU is lost]" * 6

NVIDIA_SMI = """#!/bin/sh
case "$*" in
*mig.mode.current*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;;
*compute-apps*) cat "{folder}/processes";;
*) cat "{folder}/gpus";;
esac
"""


@pytest.fixture
def host(lab: Lab, tmp_path: Path) -> Path:
    """A host with an old nvidia-smi; returns the folder with what it says."""
    folder = tmp_path / "smi"
    folder.mkdir()
    write_program(folder / "nvidia-smi", NVIDIA_SMI.format(folder=folder))
    (folder / "gpus").write_text(f"{HEADER}\n{ROW}\n")
    (folder / "processes").write_text("")
    lab.host("gpu-01", {"PATH": f"{folder}:/usr/bin:/bin"})
    return folder


@pytest.mark.slow
def test_gpus_and_owners_are_there_and_nothing_can_be_ended(lab: Lab, host: Path) -> None:
    with owners(1, ["python", "train.py"]) as (owner,):
        (host / "processes").write_text(f"GPU-a, {owner.pid}, 512, /usr/bin/python3\n")
        with reading(lab.client, "gpu-01") as fleet:
            (seen,) = wait_for(fleet, all_live).hosts
            assert seen.origin is HostOrigin.NVIDIA_SMI
            assert "only nvidia-smi" in seen.sentence
            snapshot = known(seen.snapshot)
            (gpu,) = snapshot.gpus
            assert (gpu.memory_used, gpu.utilization_gpu, gpu.power_draw) == (512 * MIB, 93, 512.33)
            assert (gpu.temperature_gpu, gpu.fan_speed) == (None, None)
            assert gpu.unknown["fan_speed"] is Unknown.NOT_SUPPORTED
            assert snapshot.host.name == os.uname().nodename
            (process,) = snapshot.processes
            assert (process.id.pid, process.id.start_time) == (owner.pid, None)
            assert (process.uid, process.command) == (os.getuid(), ("python", "train.py"))
            assert process.memory_used == GIB // 2
            with pytest.raises(Refused) as refused:
                fleet.machine("gpu-01", readonly=False).processes.open_handle(target_of(process))
            assert refused.value.sentence
            # The driver goes, and comes back.
            (host / "gpus").write_text("NVIDIA-SMI has failed because \x1b[31m it could not.\n")
            wait_until(lambda: "NVIDIA-SMI has failed" in state(fleet, "gpu-01").sentence)
            assert "\x1b" not in state(fleet, "gpu-01").sentence
            (host / "gpus").write_text(f"{HEADER}\n{ROW}\n{LOST}\n")
            both = wait_for(fleet, lambda now: len(known(now.hosts[0].snapshot).gpus) == 2)
            snapshot = known(both.hosts[0].snapshot)
            assert [gpu.status for gpu in snapshot.gpus] == [GpuStatus.OK, GpuStatus.LOST]
            assert snapshot.gpus[1].memory_used is None
    wait_until(lambda: lab.hosts["gpu-01"].sessions() == [], lab.hosts["gpu-01"].sessions)


OTHER_VERSION = """#!/bin/sh
echo '{"schema":"gpumon.stream/1","sequence":1,"written_unix_seconds":1764201600.0,"full":true}'
exec sleep 600
"""
"""The beginning of the stream of an older gpumon."""


@pytest.mark.slow
def test_a_host_with_another_version_is_read_by_nvidia_smi_until_updated(
    lab: Lab, host: Path
) -> None:
    write_program(host / "gpumon", OTHER_VERSION)
    with reading(lab.client, "gpu-01") as fleet:
        hosts = wait_for(fleet, lambda now: now.hosts[0].status is not HostStatus.CONNECTING)
        (old,) = hosts.hosts
        assert old.status is HostStatus.LIVE, "there is no pause in between"
        assert old.origin is HostOrigin.NVIDIA_SMI
        assert "version 1 of the stream" in old.sentence
        assert "install the same at both ends" in old.sentence
        assert [gpu.utilization_gpu for gpu in known(old.snapshot).gpus] == [93]
        write_program(host / "gpumon", f'#!/bin/sh\ncd {shlex.quote(ROOT)}\nexec {STREAMER} "$@"\n')
        lab.hosts["gpu-01"].stop()
        lab.hosts["gpu-01"].start()
        updated = wait_for(fleet, lambda now: now.hosts[0].origin is HostOrigin.GPUMON).hosts[0]
        assert updated.sentence == ""


def test_a_host_that_answers_anything_with_another_version_is_not_asked_for_ever(lab: Lab) -> None:
    answer = lab.folder / "answer"
    write_program(
        answer, f"#!/bin/sh\necho x >> {lab.folder}/asked\necho '#gpumon stream'\n{OTHER_VERSION}"
    )
    lab.host("gpu-01", {}, [f"ForceCommand {answer}"])
    with reading(lab.client, "gpu-01") as fleet:
        assert "version 1 of the stream" in wait_down(fleet).sentence
    assert (lab.folder / "asked").read_text().count("x") == 2


def test_a_host_with_another_version_and_nothing_else_is_down_with_the_reason(lab: Lab) -> None:
    folder = lab.folder / "bin"
    folder.mkdir()
    write_program(folder / "gpumon", OTHER_VERSION)
    lab.host("gpu-01", {"PATH": f"{folder}:/usr/bin:/bin"})
    with reading(lab.client, "gpu-01") as fleet:
        assert "version 1 of the stream" in wait_down(fleet).sentence


def block(gpus: str, processes: str = "", owners: str = "") -> bytes:
    return f"#gpus\n{gpus}\n#processes\n{processes}\n#owners\n{owners}\n#end\n".encode()


def test_a_block_may_arrive_in_any_pieces() -> None:
    data = block(f"{HEADER}\n{ROW}", "GPU-a, 7, [N/A], /opt/a, b/py", "7 1000 ann 60 R py -c x y")
    reader = SmiReader("gpu-01")
    found = [snapshot for at in range(len(data)) for snapshot in reader.feed(data[at : at + 1])]
    (process,) = found[0].processes
    assert (process.name, process.user, process.state) == ("py", "ann", "R")
    assert process.memory_used is None
    assert process.command == ("py", "-c", "x", "y")
    assert process.started_at == pytest.approx(found[0].time - 60)


def test_a_process_that_began_before_all_clocks_began_at_an_unknown_time() -> None:
    old = "7 1000 ann 999999999999999 R py -c x"
    (snapshot,) = SmiReader("x").feed(block(f"{HEADER}\n{ROW}", "GPU-a, 7, 1, /opt/py", old))
    assert [(one.command, one.started_at) for one in snapshot.processes] == [
        (("py", "-c", "x"), None)
    ]


def test_a_process_that_ps_does_not_show_is_not_visible() -> None:
    (snapshot,) = SmiReader("x").feed(block(f"{HEADER}\n{ROW}", "GPU-a, 7, 1, [Not Found]"))
    assert [(one.visible, one.name) for one in snapshot.processes] == [(False, None)]


def test_no_gpu_is_said_and_not_shown_as_none() -> None:
    (snapshot,) = SmiReader("x").feed(block("No devices were found"))
    assert known(snapshot.trouble).sentence == "No devices were found"
    (snapshot,) = SmiReader("x").feed(block(""))
    assert snapshot.trouble is not None


def test_a_block_without_end_is_refused() -> None:
    reader = SmiReader("x")
    for _ in range(16):
        reader.feed(b"x" * 2**16)
    with pytest.raises(StreamError, match="without end"):
        reader.feed(b"x")


@given(st.lists(st.binary(max_size=200) | st.sampled_from([ROW.encode(), HEADER.encode()])))
def test_whatever_stands_in_a_block_is_a_snapshot_or_refused(parts: list[bytes]) -> None:
    reader = SmiReader("x")
    for part in parts:
        with suppress(StreamError):
            reader.feed(b"#gpus\n" + HEADER.encode() + b"\n" + part + b"\n#processes\n" + part)
            reader.feed(b"\n#owners\n" + part + b"\n#end\n")
