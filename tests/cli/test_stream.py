"""``gpumon stream`` as programs use it: a process of its own, and the pipe that it writes to."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import DEVNULL, PIPE
from typing import Any

import pytest
from msgspec.structs import replace

from gpumon.export.as_json import json_key, to_json
from gpumon.findings.finding import FindingKind
from gpumon.makers.nvidia.gpm import METRICS
from gpumon.model.snapshot import GpuStatus
from gpumon.recording.recording import EventKind
from gpumon.stream import Heartbeat, StreamedSample, StreamReader, session
from tests.build import NOON, snapshot
from tests.command import GPUMON, run_gpumon
from tests.driver import Driver, Owner, h100, h100_mig, owners
from tests.known import known
from tests.lives import signal_another_thread
from tests.recording.csv.command import wait_until
from tests.screen import PATIENCE, Screen

STREAM = [*GPUMON, "stream"]
_SILENT = """
import sys
from gpumon.cli import main
from gpumon.stream import session
session.SILENCE = 3600.0
sys.exit(main(["stream", *sys.argv[1:]]))
"""
SILENT = [sys.executable, "-c", _SILENT]
"""The same without heartbeats, whose writing would notice a closed pipe."""


class Stream:
    """A ``gpumon stream`` that runs, and the reader of its lines."""

    def __init__(self, process: subprocess.Popen[bytes], output: int) -> None:
        self.process = process
        self.raw = bytearray()
        self._output = output
        self._reader = StreamReader()
        self._waiting: list[StreamedSample] = []

    def next(self) -> StreamedSample:
        """The sample of the next line."""
        while not self._waiting:
            data = os.read(self._output, 65536)
            assert data, f"it ended: {self.process.stderr and self.process.stderr.read()!r}"
            self.raw += data
            self._waiting = self._reader.feed(data)
        return self._waiting.pop(0)

    def until(self, holds: Callable[[StreamedSample], object]) -> StreamedSample:
        """The first sample for which a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            sample = self.next()
            if holds(sample):
                return sample
        raise AssertionError("no such sample came")

    def close(self) -> None:
        """Read no more."""
        os.close(self._output)
        self._output = -1

    def ended(self) -> tuple[int, bytes]:
        """The status with which it ends by itself, and what it said."""
        return self.process.wait(PATIENCE), known(self.process.stderr).read()


@contextmanager
def streaming(
    *arguments: str,
    command: list[str] = STREAM,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    pipe_bytes: int | None = None,
) -> Iterator[Stream]:
    """A ``gpumon stream``; killed at the end of the block if it still runs."""
    read, write = os.pipe()
    if pipe_bytes is not None:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, pipe_bytes)
    command = [*command, *arguments]
    with subprocess.Popen(command, env=env, stdin=stdin, stdout=write, stderr=PIPE) as process:
        os.close(write)
        stream = Stream(process, read)
        try:
            yield stream
        finally:
            process.kill()
            with suppress(OSError):
                stream.close()


def exported(env: Mapping[str, str]) -> Any:
    """What ``gpumon snapshot`` says of the same machine."""
    return json.loads(run_gpumon("snapshot", "--format", "json", env=env).stdout)


def wait_for_samples(driver: Driver, count: int) -> None:
    """Wait until a program has sampled the first card so many times more."""

    def times() -> int:
        return driver.cards[0].times("nvmlDeviceGetPowerUsage")

    enough = times() + count
    wait_until(lambda: times() >= enough, f"{count} samples")


def test_the_stream_shows_what_a_snapshot_shows() -> None:
    with Driver([h100(), h100_mig()]) as driver, owners(2) as jobs:
        one, two = driver.cards
        one.processes = [Owner(jobs[0].pid, memory=5 * 2**30)]
        one.utilization_gpu = 40
        two.name = "NVIDIA \x1b[31mH100"
        with streaming("-n", "0.2", env=driver.env()) as stream:
            first = stream.next()
            sample = stream.until(lambda one: one.snapshot.processes and one.sequence > 3)
            expected = exported(driver.env())
    assert first.sequence == 1
    assert sample.interval == 0.2
    shown = json.loads(to_json(sample.snapshot))
    # A stream has what GPUs are profiled for after a second, a single sample never.
    for instance in (mig for row in (*shown["gpus"], *expected["gpus"]) for mig in row["mig"]):
        for field in METRICS:
            del instance[json_key(field)]
    for row, other in zip(shown["gpus"], expected["gpus"], strict=True):
        fixed = ("uuid", "name", "memory_total_bytes", "utilization_gpu_percent", "status", "mig")
        assert {key: row[key] for key in fixed} == {key: other[key] for key in fixed}
    (process,), (same,) = shown["processes"], expected["processes"]
    of_process = ("pid", "start_time_ticks", "user", "uid", "command", "uses", "name", "type")
    assert {key: process[key] for key in of_process} == {key: same[key] for key in of_process}
    assert shown["host"]["driver_version"] == expected["host"]["driver_version"]
    assert shown["host"]["memory_total_bytes"] == expected["host"]["memory_total_bytes"]
    assert [state.gpu_uuid for state in sample.states] == [row["uuid"] for row in shown["gpus"]]


def test_errors_of_a_card_are_events_and_its_state() -> None:
    with Driver([h100(), h100()]) as driver, streaming("-n", "0.1", env=driver.env()) as stream:
        stream.until(lambda one: one.sequence > 3)
        driver.cards[1].xid(79)
        driver.cards[1].lost = True
        sample = stream.until(lambda one: one.events)
        assert {event.kind for event in sample.events} <= {EventKind.ERROR, EventKind.ACCIDENT}
        assert {event.gpus for event in sample.events} == {(sample.snapshot.gpus[1].uuid,)}
        sample = stream.until(lambda one: one.states[1].kind is FindingKind.LOST)
        assert sample.snapshot.gpus[1].status is GpuStatus.LOST
        assert sample.snapshot.gpus[0].status is GpuStatus.OK


def test_any_program_reads_a_line_of_json_for_each_sample() -> None:
    with Driver([h100()]) as driver:
        command = [*STREAM, "--format", "json", "-n", "0.1"]
        with subprocess.Popen(command, env=driver.env(), stdin=DEVNULL, stdout=PIPE) as process:
            told = [json.loads(known(process.stdout).readline()) for _ in range(3)]
            driver.cards[0].name = "NVIDIA \x1b[31mH100"
            process.terminate()
            assert process.wait(PATIENCE) == 0
        expected = exported(driver.env())
    assert told[0].keys() == expected.keys()
    assert [one["schema"] for one in told] == ["gpumon.snapshot/1"] * 3
    assert [one["gpus"][0]["uuid"] for one in told] == [expected["gpus"][0]["uuid"]] * 3
    times = [one["time_unix_seconds"] for one in told]
    assert times == sorted(set(times))


def test_a_line_of_json_is_not_written_again_where_samples_are_rare() -> None:
    write, first = session.json_lines(), snapshot(NOON)
    assert json.loads(write(first, heartbeat=None))["schema"] == "gpumon.snapshot/1"
    assert write(first, heartbeat=Heartbeat("a sample is taken every 3600 s")) == b""
    assert write(replace(first, time=NOON + 1)).endswith(b"\n")


def test_a_compressed_stream_is_not_written_to_a_terminal() -> None:
    with Screen([*STREAM, "--demo"]) as screen:
        screen.wait_for("add --format json")
        assert screen.wait_end() == 2
    with Screen([*STREAM, "--demo", "--format", "json"]) as screen:
        screen.wait_for('"schema":"gpumon.snapshot/1"')


def test_only_the_chosen_cards_are_streamed() -> None:
    with streaming("--demo", "--gpus", "1,3") as stream:
        assert [gpu.index for gpu in stream.next().snapshot.gpus] == [1, 3]


def test_a_driver_that_hangs_is_told_with_the_age_of_the_values() -> None:
    with Driver([h100()]) as driver, streaming("-n", "0.2", env=driver.env()) as stream:
        stream.until(lambda one: one.sequence > 3)
        driver.cards[0].hang()
        sample = stream.until(lambda one: one.snapshot.gpus[0].status is GpuStatus.NO_ANSWER)
        read_at = known(sample.snapshot.gpus[0].sampled_at)
        later = stream.until(lambda one: one.snapshot.time > sample.snapshot.time + 1)
        assert later.snapshot.gpus[0].sampled_at == read_at
        driver.cards[0].release()
        stream.until(lambda one: one.snapshot.gpus[0].status is GpuStatus.OK)


def test_a_machine_that_hangs_as_a_whole_has_a_heartbeat_with_the_reason() -> None:
    with Driver([h100()]) as driver, streaming("-n", "0.2", env=driver.env()) as stream:
        stream.until(lambda one: one.sequence > 3)
        driver.latency(PATIENCE)
        sample = stream.until(lambda one: one.heartbeat)
        driver.latency(0)
        beat = known(sample.heartbeat)
        assert re.fullmatch(r"the driver \(nvml\w+\) has not answered for \d+s", beat.reason)
        assert known(beat.age) > 0.5


def test_there_is_a_heartbeat_where_samples_are_rare() -> None:
    with streaming("--demo", "-n", "3600") as stream:
        first = stream.next()
        second = stream.next()
        beat = known(second.heartbeat)
        assert beat.reason == "a sample is taken every 3600 s"
        assert known(beat.age) >= 4
        assert second.snapshot is first.snapshot
        assert second.written_at > first.written_at


def test_where_there_is_no_driver_the_last_line_and_the_error_say_so() -> None:
    with Driver([h100()]) as driver:
        driver.fail_init(9)
        with streaming(env=driver.env()) as stream:
            sample = stream.next()
            status, said = stream.ended()
    assert sample.snapshot.gpus == ()
    assert status == 1
    assert said.decode().startswith(f"gpumon: {known(sample.snapshot.trouble).sentence}")


def test_a_reader_that_closes_the_pipe_ends_the_stream_at_once() -> None:
    with streaming("--demo", "-n", "3600", command=SILENT) as stream:
        stream.next()
        stream.close()
        assert stream.ended() == (0, b"")


def test_a_reader_that_closes_a_full_pipe_ends_the_stream_quietly() -> None:
    with (
        Driver([h100()]) as driver,
        streaming("-n", "0.1", env=driver.env(), pipe_bytes=4096) as stream,
    ):
        wait_for_samples(driver, 30)
        stream.close()
        assert stream.ended() == (0, b"")


def test_a_reader_that_is_killed_ends_the_stream() -> None:
    command = [*SILENT, "--demo", "-n", "3600"]
    with (
        subprocess.Popen(["cat"], stdin=PIPE, stdout=PIPE) as reader,
        subprocess.Popen(command, stdin=DEVNULL, stdout=reader.stdin, stderr=PIPE) as process,
    ):
        known(reader.stdin).close()
        assert known(reader.stdout).readline().startswith(b'{"schema":"gpumon.stream/2"')
        reader.kill()
        assert process.wait(PATIENCE) == 0
        assert known(process.stderr).read() == b""


@pytest.mark.slow
def test_a_stopped_reader_loses_samples_and_then_gets_the_newest() -> None:
    with (
        Driver([h100()] * 16) as driver,
        streaming("-n", "0.1", env=driver.env(), pipe_bytes=4096) as stream,
    ):
        first = stream.next()
        # Some twenty samples fill the pipe; nobody reads.
        wait_for_samples(driver, 60)
        # A busy machine may have left out single ones before.
        sample = stream.until(lambda one: one.dropped >= 10)
        assert sample.snapshot.time > first.snapshot.time + 2
        after = stream.next()
        assert after.sequence == sample.sequence + 1


@pytest.mark.slow
def test_events_in_samples_that_were_left_out_are_told_later() -> None:
    with (
        Driver([h100()] * 16) as driver,
        streaming("-n", "0.1", env=driver.env(), pipe_bytes=4096) as stream,
    ):
        stream.next()
        wait_for_samples(driver, 40)
        for number in (31, 48):
            driver.cards[0].xid(number)
            wait_for_samples(driver, 40)  # Less than two seconds apart they are one accident.
        sample = stream.until(lambda one: one.events)
    assert sample.dropped
    # Whose XIDs the kernel log has, if it may be read, and otherwise what the driver says.
    sentences = [event.sentence for event in sample.events]
    assert [re.findall(r"XID (\d+)", sentence) for sentence in sentences] == [["31"], ["48"]]


def test_a_stopped_reader_does_not_hold_up_the_end() -> None:
    with streaming("--demo", "-n", "0.1", pipe_bytes=4096) as stream:
        stream.next()
        time.sleep(2)
        stream.process.terminate()
        assert stream.ended() == (0, b"")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_stream_quietly(number: signal.Signals) -> None:
    with streaming("--demo", "-n", "3600") as stream:
        stream.next()
        stream.process.send_signal(number)
        assert stream.ended() == (0, b"")


def test_a_signal_that_another_thread_receives_ends_the_stream() -> None:
    with streaming("--demo", "-n", "0.1") as stream:
        for _ in range(5):
            stream.next()
        signal_another_thread(stream.process.pid, signal.SIGTERM)
        assert stream.ended() == (0, b"")


def test_a_parent_that_ends_ends_the_stream_though_the_pipe_is_still_open() -> None:
    with streaming("--demo", "-n", "0.5", stdin=subprocess.PIPE) as stream:
        stdin = known(stream.process.stdin)
        begun = stream.next().written_at
        stdin.write(b"what is written to it is ignored\n")
        stdin.flush()
        stream.until(lambda one: one.written_at > begun + 6)
        stdin.close()
        assert stream.ended() == (0, b"")


def test_a_standard_input_that_was_never_open_ends_nothing() -> None:
    read, write = os.pipe()
    os.close(write)
    try:
        with streaming("--demo", "-n", "0.5", stdin=read) as stream:
            begun = stream.next().written_at
            stream.until(lambda one: one.written_at > begun + 7)
    finally:
        os.close(read)
