"""One process of a session: what is waited for, and what is said of it meanwhile."""

from __future__ import annotations

import signal

import pytest

from gpumon.host.process_host import ProcessStatus, Refusal, Refused, Target
from gpumon.kill.outcome import PATIENCE, Outcome
from gpumon.kill.target import TargetState
from gpumon.model.processes import ProcessId


class Handle:
    """A hold on a process with these states, one after the other."""

    def __init__(self, states: str = "") -> None:
        self.states = list(states)

    def status(self) -> ProcessStatus:
        return ProcessStatus(self.states.pop(0), "nfs_wait")

    def close(self) -> None: ...


def held(states: str = "") -> TargetState:
    state = TargetState(Target(ProcessId(5, 1), 1001))
    state.handle = Handle(states)  # type: ignore[assignment]  # no other method is called
    return state


def test_a_process_that_ended_with_its_parent_before_its_own_signal_is_waited_for() -> None:
    with_handle, without = held(), TargetState(Target(ProcessId(5, 1), 1001))
    for state in (with_handle, without):
        state.refuse(Refused(Refusal.GONE, "it had ended"))
    assert (with_handle.outcome, without.outcome) == (Outcome.WAITING, Outcome.GONE)


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize(
    ("reason", "outcome", "after_signal"),
    [
        (Refusal.UNANSWERED, Outcome.UNKNOWN, Outcome.UNKNOWN),
        (Refusal.UNREACHABLE, Outcome.REFUSED, Outcome.UNKNOWN),
        (Refusal.NOT_PERMITTED, Outcome.REFUSED, Outcome.REFUSED),
    ],
)
def test_of_a_machine_out_of_reach_a_refusal_is_certain_only_before_the_signal(
    reason: Refusal, outcome: Outcome, after_signal: Outcome, *, sent: bool
) -> None:
    state = held()
    if sent:
        state.sent(signal.SIGTERM, 0.0)
    state.refuse(Refused(reason, "no"))
    assert state.outcome is (after_signal if sent else outcome)
    assert (state.handle, state.refusal) == (None, reason)


KERNEL = "5 waits inside the kernel (nfs_wait): no signal reaches it until that ends"


@pytest.mark.parametrize(
    ("number", "states", "seconds", "sentence"),
    [
        (signal.SIGTERM, "D", 1.0, ""),
        (signal.SIGTERM, "DD", 1.0, KERNEL),
        (signal.SIGTERM, "DSD", 1.0, ""),
        (signal.SIGTERM, "T", 1.0, "5 is stopped: TERM acts once it is continued"),
        (signal.SIGTERM, "t", 1.0, "5 is held by a debugger: TERM acts once the debugger"),
        (signal.SIGKILL, "T", 1.0, ""),
        (signal.SIGKILL, "t", 1.0, ""),
        (signal.SIGTERM, "S", PATIENCE - 0.5, ""),
        (signal.SIGTERM, "S", PATIENCE, "5 still runs 5s after TERM: it ignores the signal"),
        (signal.SIGTERM, "Z", PATIENCE, "5 still runs without its main thread 5s after TERM"),
        (signal.SIGKILL, "S", PATIENCE, "5 was killed 5s ago, and the kernel is still cleaning"),
        (signal.SIGSTOP, "S", PATIENCE, ""),
    ],
)
def test_why_a_process_has_not_ended_is_said_once_it_is_known(
    number: int, states: str, seconds: float, sentence: str
) -> None:
    state = held(states)
    state.sent(number, 0.0)
    for _ in states:
        state.read_status()
    said = state.result(seconds).sentence
    assert said.startswith(sentence)
    assert bool(said) is bool(sentence)
