"""Which processes count as stopped by this program; ``test_frozen`` does it to real ones."""

from __future__ import annotations

import pytest

from gpumon.kill.frozen import FrozenProcesses


class Process:
    """A process that counts how often it was stopped and continued."""

    def __init__(self) -> None:
        self.stopped = self.resumed = 0

    def stop(self) -> None:
        self.stopped += 1

    def refuse(self) -> None:
        raise ProcessLookupError

    def resume(self) -> None:
        self.resumed += 1


def test_a_process_is_continued_once_and_only_if_it_was_stopped() -> None:
    frozen, process, other = FrozenProcesses(), Process(), Process()
    frozen.stop(process, process.stop)
    for each in (process, process, other):
        frozen.resume(each)
    assert (process.stopped, process.resumed, other.resumed) == (1, 1, 0)


def test_a_process_that_could_not_be_stopped_or_was_killed_is_not_continued() -> None:
    frozen, refused, killed = FrozenProcesses(), Process(), Process()
    with pytest.raises(ProcessLookupError):
        frozen.stop(refused, refused.refuse)
    frozen.stop(killed, killed.stop)
    frozen.killed(killed)
    frozen.end()
    assert (refused.resumed, killed.resumed) == (0, 0)


def test_while_this_program_is_suspended_nothing_is_stopped_and_afterwards_it_may_be() -> None:
    frozen, process = FrozenProcesses(), Process()
    frozen.stop(process, process.stop)
    with frozen.suspended():
        assert process.resumed == 1
    frozen.stop(process, process.stop)
    assert process.stopped == 2
    frozen.end()


def test_at_its_end_all_are_continued_and_none_is_stopped() -> None:
    frozen, processes = FrozenProcesses(), [Process(), Process()]
    for process in processes:
        frozen.stop(process, process.stop)
    frozen.end()
    frozen.stop(processes[0], processes[0].stop)
    assert [(process.stopped, process.resumed) for process in processes] == [(1, 1), (1, 1)]
