"""What a program with pipes promises: it never blocks for ever, and ends with all it started."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest

from gpumon.system.piped_program import Channel, PipedProgram, end_all
from tests.screen import PATIENCE

PARENT = ("sh", "-c", "sleep 3600 & echo $!; cat >/dev/null")
"""Prints the PID of a child, which does not notice that the pipes are closed."""


def test_what_the_program_of_a_channel_has_started_ends_with_it() -> None:
    channel = Channel(PARENT)
    child = int(channel.read())
    descriptor = os.pidfd_open(child)
    channel.close()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(PATIENCE * 1000)
    os.close(descriptor)


def test_a_program_that_ignores_every_request_is_killed() -> None:
    program = PipedProgram(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done"])
    assert select.select([program.output], [], [], PATIENCE)[0]
    program.signal(signal.SIGTERM)
    end_all([program], 0.0)
    assert program.is_over
    assert program.ended() == -signal.SIGKILL


def test_what_a_wrapper_has_started_may_end_in_order(tmp_path: Path) -> None:
    """As a ``gpumon remote`` must, which continues what it has stopped."""
    mark = tmp_path / "ended in order"
    slow = f"trap 'touch \"{mark}\"; exit' TERM; echo ready; while :; do sleep 0.05; done"
    program = PipedProgram(["sh", "-c", f"({slow}); true"])
    assert select.select([program.output], [], [], PATIENCE)[0]
    program.close_input()
    end_all([program], 0.0, grace=PATIENCE)
    assert program.is_over
    assert mark.exists()


def test_writing_to_a_program_that_does_not_read_ends_at_the_deadline() -> None:
    channel = Channel(["sleep", "3600"])
    with pytest.raises(TimeoutError):
        channel.write(b"x" * 2**22, time.monotonic() + 0.05)
    channel.close()


def test_merged_output_has_what_is_written_on_standard_error() -> None:
    program = PipedProgram(["sh", "-c", "echo out; echo error >&2"], merged=True)
    assert program.errors == program.output
    written = b""
    while select.select([program.output], [], [], PATIENCE)[0]:
        data = program.read(program.output)
        if not data:
            break
        written += data
    assert written.split() == [b"out", b"error"]
    assert program.end() == 0
