"""The demo's processes: looked at and ended as real ones are, while no real one is touched."""

from __future__ import annotations

import ast
import math
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpumon.makers.demo
from gpumon.host.details import is_secret
from gpumon.host.process_host import ProcessHandle, ProcessHost, Refusal, Refused, Target, target_of
from gpumon.kill.audit_log import AuditLog
from gpumon.kill.outcome import Outcome
from gpumon.kill.session import TerminationSession
from gpumon.makers.demo import DemoSource
from gpumon.makers.demo.world import SignalEffects
from gpumon.model.processes import GpuProcess, HoldReason, ProcessId, UnlistedHolder
from gpumon.model.selection import ALL, GpuSelection, parse_selection
from gpumon.model.snapshot import Snapshot
from tests.clock import HandClock
from tests.known import known

START = 1_763_700_000.3
GIB = 2**30
TRAINING = 51022
STUBBORN = 51047
KERNEL = 58204
ORPHAN = 44817
PATIENCE = 60.0


class Demo:
    """A demo whose time is set, and what a person does to it."""

    def __init__(self, *, readonly: bool = False, selection: GpuSelection = ALL) -> None:
        self.clock = HandClock(START, epoch=0.0)
        self.source = DemoSource(1, self.clock, selection)
        self.host: ProcessHost = self.source.host(readonly=readonly)

    def sample(self, later: float = 0.0) -> Snapshot:
        self.clock.now += later
        return self.source.sample()

    def process(self, pid: int) -> GpuProcess:
        return next(p for p in self.source.sample().processes if p.id.pid == pid)

    def suspects(self) -> dict[int, UnlistedHolder]:
        return {suspect.id.pid: suspect for suspect in known(self.sample().holders).suspects}

    def relative(self, pid: int) -> Target:
        """Somebody of the family of the training, or of another lead."""
        roots = [p.id for p in self.source.sample().processes]
        (relative,) = [one for one in self.host.relatives(roots) if one.id.pid == pid]
        return Target(relative.id, relative.uid, user=relative.user)

    def open_handle(self, pid: int) -> ProcessHandle:
        return self.host.open_handle(target_of(self.process(pid)))

    def open_suspect(self, pid: int) -> ProcessHandle:
        suspect = self.suspects()[pid]
        return self.host.open_handle(Target(suspect.id, suspect.uid, user=suspect.user))

    def used(self, card: int) -> float:
        """GiB in use of a card."""
        return known(self.sample().gpus[card].memory_used) / GIB

    def end(self, handle: ProcessHandle, number: int = signal.SIGKILL) -> float:
        """Send a signal and wait; returns the seconds it took."""
        begun = self.clock.now
        handle.send(number)
        self.host.wait([handle], 10.0)
        assert handle.ended()
        return self.clock.now - begun


@pytest.fixture
def demo() -> Demo:
    return Demo()


def refused(action: Callable[[], object]) -> Refusal | None:
    """Why something was refused; ``None`` when it was done."""
    try:
        action()
    except Refused as answer:
        return answer.reason
    return None


def refusal(handle: ProcessHandle, number: int = signal.SIGTERM) -> Refused:
    with pytest.raises(Refused) as caught:
        handle.send(number)
    return caught.value


def test_the_person_who_looks_has_processes_of_their_own(demo: Demo) -> None:
    mine = [p for p in demo.sample().processes if p.uid == demo.host.uid]
    assert len(mine) >= 3
    assert {p.user for p in mine} == {demo.host.user}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_ends_within_a_second_and_its_memory_is_back(demo: Demo, number: int) -> None:
    before = demo.used(1)
    assert 0.4 <= demo.end(demo.open_handle(KERNEL), number) <= 1.1
    after = demo.sample(0.01)
    assert before - demo.used(1) == pytest.approx(6.1, abs=0.01)
    assert KERNEL not in {p.id.pid for p in after.processes}
    assert known(after.processes_at) > START


def test_what_it_did_stops_with_it(demo: Demo) -> None:
    before = demo.sample().gpus
    demo.end(demo.open_handle(TRAINING))
    after = demo.sample(60.0).gpus
    utilization = [known(gpu.utilization_gpu) for gpu in (*before[:2], *after[:2])]
    assert utilization[2] < 0.5 * utilization[0]
    # An evaluation does most of the work of GPU 1.
    assert utilization[3] < utilization[1] - 5
    assert known(after[0].power_draw) < known(before[0].power_draw) - 50
    for card in (0, 1):
        assert known(after[card].temperature_gpu) < known(before[card].temperature_gpu)
        assert after[card].utilization_gpu, "others still work there"


def send(demo: Demo, target: Target, number: int) -> None:
    demo.host.open_handle(target).send(number)


@given(
    st.floats(0.0, 600.0),
    st.lists(st.tuples(st.sampled_from([TRAINING, 51090]), st.floats(0.0, 60.0)), max_size=4),
    st.lists(st.sampled_from([signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM]), max_size=4),
)
def test_power_energy_and_memory_agree_whatever_was_signalled(
    later: float, chosen: list[tuple[int, float]], numbers: list[int]
) -> None:
    demo = Demo()
    targets = {pid: target_of(demo.process(pid)) for pid, _ in chosen}
    for (pid, pause), number in zip(chosen, numbers, strict=False):
        demo.clock.now += pause
        answer = refused(partial(send, demo, targets[pid], number))
        assert answer in (None, Refusal.GONE)
    # On a full second the list and the cards are of one there.
    demo.clock.now = float(math.ceil(demo.clock.now + later))
    before, after = demo.sample(), demo.sample(1.0)
    for old, new in zip(before.gpus, after.gpus, strict=True):
        if new.energy is None or old.energy is None or new.memory_used is None:
            continue
        assert new.energy - old.energy == pytest.approx(new.power_draw, abs=0.02)
        assert 60 <= known(new.power_draw) <= 720
        held = [use for p in after.processes for use in p.uses if use.gpu_uuid == new.uuid]
        assert new.memory_used >= sum(use.memory_used or 0 for use in held)
        assert sum(use.sm or 0 for use in held) <= known(new.utilization_gpu) + len(held)


@pytest.mark.slow
def test_one_time_is_one_snapshot_after_a_signal_too(demo: Demo) -> None:
    told = list(demo.source.past())
    demo.clock.now += 30
    demo.end(demo.open_handle(TRAINING))
    ended_at = demo.clock.now
    demo.clock.now += 100
    later = demo.sample()
    demo.clock.now = START
    assert TRAINING in {p.id.pid for p in demo.sample().processes}
    assert list(demo.source.past()) == told
    demo.clock.now = ended_at + 100
    assert demo.sample() == later
    other = Demo()
    other.clock.now += 30
    other.end(other.open_handle(TRAINING))
    other.clock.now = ended_at + 100
    assert other.sample() == later


def test_a_stubborn_loader_ends_by_kill_only(demo: Demo) -> None:
    handle = demo.open_suspect(STUBBORN)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        handle.send(number)
    demo.host.wait([handle], 30.0)
    assert not handle.ended()
    assert known(handle.status()).state == "S"
    assert demo.end(handle) < 0.4
    assert handle.status() is None


def test_some_memory_stays_with_the_child_that_outlives_its_parent(demo: Demo) -> None:
    before = demo.used(0)
    assert demo.suspects()[STUBBORN].reason is HoldReason.CHILD
    demo.end(demo.open_handle(TRAINING), signal.SIGTERM)
    snapshot = demo.sample(5.0)
    assert before - demo.used(0) == pytest.approx(47.9 - 12.0, abs=0.01)
    suspects = demo.suspects()
    suspect = suspects[STUBBORN]
    assert suspect.reason is HoldReason.ORPHAN
    assert suspect.sentence == "its parent 51022 ended 4s ago; init took it over"
    assert suspect.parent == ProcessId(1, 0)
    assert suspect.gpu_uuids == (snapshot.gpus[0].uuid,)
    assert TRAINING not in {one.parent.pid for one in suspects.values() if one.parent}
    demo.end(demo.open_suspect(STUBBORN))
    assert before - demo.used(0) == pytest.approx(47.9, abs=0.01)


def test_all_memory_is_back_where_the_loader_ends_first(demo: Demo) -> None:
    before = demo.used(0)
    demo.end(demo.open_suspect(STUBBORN))
    assert demo.used(0) == before
    demo.end(demo.open_handle(TRAINING))
    assert before - demo.used(0) == pytest.approx(47.9, abs=0.01)


def test_ending_the_orphan_gives_the_stray_memory_back(demo: Demo) -> None:
    before = demo.used(7)
    demo.end(demo.open_suspect(ORPHAN), signal.SIGTERM)
    assert before - demo.used(7) == pytest.approx(31.0, abs=0.01)
    assert ORPHAN not in demo.suspects()


def test_a_stopped_process_does_nothing_until_it_is_continued(demo: Demo) -> None:
    handle = demo.open_handle(TRAINING)
    handle.send(signal.SIGSTOP)
    stopped = demo.process(TRAINING)
    assert (stopped.state, stopped.sm, stopped.cpu_percent) == ("T", 0, 0)
    assert known(handle.status()).state == "T"
    demo.clock.now += 50
    idle = known(demo.sample().gpus[0].utilization_gpu)
    handle.send(signal.SIGCONT)
    demo.clock.now += 50
    assert demo.process(TRAINING).sm
    assert known(demo.sample().gpus[0].utilization_gpu) > idle


def test_a_stopped_process_ends_when_it_is_continued(demo: Demo) -> None:
    handle = demo.open_handle(TRAINING)
    for number in (signal.SIGSTOP, signal.SIGTERM):
        handle.send(number)
    demo.clock.now += 20
    assert not handle.ended()
    assert demo.used(0) > 47.9
    handle.send(signal.SIGCONT)
    assert demo.process(TRAINING).state == "R"
    demo.host.wait([handle], 5.0)
    assert handle.ended()


def test_signals_that_end_nobody_end_nobody(demo: Demo) -> None:
    handle = demo.open_handle(TRAINING)
    for number in (0, signal.SIGCHLD, signal.SIGWINCH, signal.SIGURG, signal.SIGCONT):
        handle.send(number)
    demo.clock.now += 10
    assert not handle.ended()


def test_other_peoples_processes_are_refused_as_on_a_real_machine(demo: Demo) -> None:
    others = [p for p in demo.sample().processes if p.uid != demo.host.uid]
    assert len(others) > 10
    for process in others:
        answer = refusal(demo.host.open_handle(target_of(process)))
        assert answer.reason is Refusal.NOT_PERMITTED
        assert f"{process.id.pid} is {process.user}'s, not yours" in answer.sentence
    for number in {0, *signal.valid_signals()}:
        answer = refusal(demo.host.open_handle(target_of(process)), number)
        assert answer.reason is Refusal.NOT_PERMITTED
    demo.clock.now += 10
    assert {p.id for p in others} <= {p.id for p in demo.sample().processes}


def test_a_root_process_is_for_the_administrator(demo: Demo) -> None:
    assert "ask an administrator" in refusal(demo.host.open_handle(demo.relative(38440))).sentence


def test_readonly_refuses_every_signal() -> None:
    demo = Demo(readonly=True)
    assert demo.host.readonly
    assert refused(lambda: demo.open_handle(TRAINING)) is Refusal.READ_ONLY


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        # gpumon, and what it was started from.
        *((ProcessId(pid, 0), Refusal.PROTECTED) for pid in (0, 1, 53790, 53702, 48810)),
        (ProcessId(KERNEL, 7), Refusal.REUSED),
    ],
)
def test_what_may_not_be_signalled_is_refused(
    demo: Demo, target: ProcessId, reason: Refusal
) -> None:
    for uid in (0, demo.host.uid):
        assert refused(lambda uid=uid: demo.host.open_handle(Target(target, uid))) is reason  # type: ignore[misc] # a default


def test_who_has_ended_is_gone(demo: Demo) -> None:
    target = target_of(demo.process(KERNEL))
    handle = demo.host.open_handle(target)
    demo.end(handle)
    assert refusal(handle).reason is Refusal.GONE
    with pytest.raises(Refused, match="58204 had ended already"):
        demo.host.open_handle(target)
    assert demo.host.details(target.id) is None
    assert not demo.host.relatives([target.id])


def test_the_next_run_of_a_recurring_process_is_another_one(demo: Demo) -> None:
    demo.clock.now += 100
    first = {p.id for p in demo.sample().processes if p.gpu_indices == (4,)}
    demo.clock.now += 13 * 60
    second = {p.id for p in demo.sample().processes if p.gpu_indices == (4,)}
    assert len(first | second) == 2
    assert [relative.id for relative in demo.host.relatives(second)][-1] in second


@given(st.integers(0, 30 * 86400))
def test_families_stand_parents_first_and_are_whole(later: int) -> None:
    demo = Demo()
    # On a full second the list and the host tell of one there.
    demo.clock.now = float(math.ceil(START) + later)
    processes = demo.sample().processes
    family = demo.host.relatives([process.id for process in processes])
    seen: dict[int, ProcessId] = {1: ProcessId(1, 0)}
    for relative in family:
        assert relative.parent in seen
        assert relative.id.pid not in seen
        assert (seen[relative.parent].start_time or 0) <= (relative.id.start_time or 0)
        seen[relative.id.pid] = relative.id
    for process in processes:
        assert {process.id, known(process.place).parent} <= set(seen.values())
    assert demo.host.workloads(processes) == {p.id: p.place for p in processes}


def test_a_family_has_ancestors_and_loaders_but_no_cousins(demo: Demo) -> None:
    family = demo.host.relatives([demo.process(TRAINING).id])
    assert [relative.name for relative in family] == ["tmux: server", "bash", *["python"] * 8]
    assert family[-1].id.pid == STUBBORN
    (training,) = [relative for relative in family if relative.id.pid == TRAINING]
    assert {relative.group for relative in family[2:]} == {TRAINING}
    assert None not in (training.rss, training.threads)


def test_no_two_processes_of_the_machine_share_a_number() -> None:
    demo = Demo()
    world = demo.source.backend.world
    for day in range(31):
        now, effects = day * 86400 + 100.0, world.state.effects
        there = [world.present(role, now, effects) for role in world.roles.values()]
        assert len(world.everybody(now, effects)) == sum(instance is not None for instance in there)


def test_details_of_my_process_tell_everything(demo: Demo) -> None:
    details = known(demo.host.details(demo.process(TRAINING).id))
    environment = dict(known(details.environment))
    expected = {
        "CUDA_VISIBLE_DEVICES": "0,1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
        "CONDA_DEFAULT_ENV": "llama",
    }
    assert {name: environment[name] for name in expected} == expected
    assert environment["TMUX"], "it has what its shell has"
    assert any(is_secret(name, value) for name, value in environment.items())
    assert details.cwd == "/home/ann/llama"
    assert details.executable == "/home/ann/miniconda3/envs/llama/bin/python3.11"
    assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= set(known(details.devices))
    assert not details.unreadable
    assert STUBBORN in {relative.id.pid for relative in details.family}


def test_details_of_others_say_what_cannot_be_read(demo: Demo) -> None:
    details = known(demo.host.details(demo.process(20991).id))
    assert (details.environment, details.cwd, details.executable, details.devices) == (None,) * 4
    assert details.command[1:3] == ("-m", "ipykernel_launcher")
    (sentence,) = details.unreadable
    assert sentence.endswith("open files are readable by bo and root only.")
    root = known(demo.host.details(demo.relative(38440).id))
    assert root.unreadable[0].endswith("by root only.")


def test_a_scan_tells_what_the_snapshot_tells(demo: Demo) -> None:
    demo.end(demo.open_handle(TRAINING))
    demo.clock.now = float(int(demo.clock.now) + 2)
    snapshot = demo.sample()
    assert demo.host.scan(snapshot) == snapshot.holders
    narrow = Demo(selection=parse_selection("3"))
    assert known(narrow.host.scan(narrow.sample())).suspects == ()


def test_waiting_ends_with_the_time_or_the_first_end(demo: Demo) -> None:
    loader, kernel = demo.open_suspect(STUBBORN), demo.open_handle(KERNEL)
    demo.host.wait([loader, kernel], 2.0)
    assert demo.clock.now - START == pytest.approx(2.0)
    kernel.send(signal.SIGTERM)
    demo.host.wait([loader, kernel], 60.0)
    assert demo.clock.now - START < 4.0
    assert kernel.ended()
    loader.close()
    loader.close()


def forbid(name: str) -> object:
    def refuse(*_: object) -> NoReturn:
        raise AssertionError(f"{name} was called")

    return refuse


def test_ending_all_signals_no_real_process(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, names in (
        (os, ("kill", "killpg", "pidfd_open", "system")),
        (signal, ("pidfd_send_signal", "pthread_kill", "raise_signal")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, forbid(name), raising=False)
    mine = [target_of(p) for p in demo.sample().processes if p.uid == demo.host.uid]
    family = demo.host.relatives([target.id for target in mine])
    relatives = [Target(one.id, one.uid) for one in family if one.uid == demo.host.uid]
    suspects = [Target(suspect.id, suspect.uid) for suspect in demo.suspects().values()]
    everybody = {target.id: target for target in (*mine, *relatives, *suspects)}.values()
    protected = {one.id for one in family if one.protected}
    held_back = [
        target.id
        for target in everybody
        if refused(partial(demo.host.open_handle, target)) is Refusal.PROTECTED
    ]
    assert protected
    assert set(held_back) == protected
    grips = [demo.host.open_handle(target) for target in everybody if target.id not in protected]
    for number in sorted(signal.valid_signals()):
        for handle in grips:
            assert refused(partial(handle.send, number)) in (None, Refusal.GONE)
        demo.clock.now += 2
    assert len(grips) >= 12
    assert all(handle.ended() for handle in grips)
    ended = {handle.target.id for handle in grips}
    assert not ended & {process.id for process in demo.sample(3.0).processes}


def test_the_demo_imports_nothing_that_could_signal() -> None:
    (folder,) = gpumon.makers.demo.__path__
    imported: set[str] = set()
    for path in Path(folder).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
    assert not {name.partition(".")[0] for name in imported} & {
        *("os", "posix", "signal", "psutil", "subprocess", "ctypes", "multiprocessing")
    }
    assert "gpumon.kill.signals" not in {name.rpartition(".")[0] for name in imported}


@pytest.mark.slow
def test_it_may_be_signalled_while_it_is_sampled(demo: Demo) -> None:
    grips = [demo.open_handle(TRAINING), demo.open_handle(KERNEL), demo.open_suspect(ORPHAN)]
    failures: list[BaseException] = []
    done = threading.Event()

    def signal_on() -> None:
        try:
            for _ in range(100):
                for handle in grips:
                    handle.send(signal.SIGSTOP)
                    handle.send(signal.SIGCONT)
                demo.host.relatives([handle.target.id for handle in grips])
        except BaseException as failure:  # noqa: BLE001 - told by the main thread
            failures.append(failure)
        finally:
            done.set()

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=signal_on) for _ in range(2)]
    try:
        for thread in threads:
            thread.start()
        while not done.is_set():
            snapshot = demo.source.sample()
            assert len(snapshot.processes) == 18
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not failures
    assert all(
        len(effect.turns) % 2 == 0
        for effect in demo.source.backend.world.state.effects.by_process.values()
    )


def test_the_story_changes_only_under_its_lock(demo: Demo, monkeypatch: pytest.MonkeyPatch) -> None:
    world = demo.source.backend.world
    change, locked = world.change, []

    def watch(effects: SignalEffects) -> None:
        locked.append(world.lock.locked())
        change(effects)

    monkeypatch.setattr(world, "change", watch)
    demo.open_handle(TRAINING).send(signal.SIGSTOP)
    assert locked == [True]
    assert not world.lock.locked()


def test_a_case_tells_what_came_back_and_with_whom_the_rest_is(tmp_path: Path) -> None:
    source = DemoSource()
    (training,) = [p for p in source.sample().processes if p.id.pid == TRAINING]
    changed = threading.Event()
    case = TerminationSession(
        source.host(readonly=False),
        [target_of(training)],
        audit_log=AuditLog(tmp_path),
        changed=changed.set,
    )
    case.see(source.sample())
    case.send(signal.SIGTERM)
    for _ in range(int(PATIENCE / 0.1)):
        case.see(source.sample())
        if case.report.done:
            break
        changed.wait(0.1)
        changed.clear()
    report = case.report
    case.close()
    assert case.join(PATIENCE)
    assert report.done
    assert [fate.outcome for fate in report.outcomes] == [Outcome.ENDED]
    first, second = report.memory
    assert known(first.returned) / GIB == pytest.approx(47.9 - 12.0, abs=0.01)
    assert [suspect.id.pid for suspect in first.remaining] == [STUBBORN]
    assert known(second.returned) / GIB == pytest.approx(47.9, abs=0.01)
    assert not second.remaining
