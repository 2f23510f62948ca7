"""What gpumon says of a process: each claim with its evidence, and none that was not seen."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from gpumon.findings import Finding, FindingKind, Severity, conditions, process_findings
from gpumon.findings.preallocation import preallocation
from gpumon.host.process_host import Details
from gpumon.model.processes import GpuProcess, Workload
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.recording.history import History
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.driver import Owner, h100, h100_mig
from tests.known import known
from tests.makers.nvml_room import Room
from tests.makers.nvml_room import furnish as furnish  # noqa: PLC0414 - a fixture

MINUTE, HOUR = 60.0, 3600.0
MIB = 2**20


def see(
    history: History, processes: Iterable[GpuProcess], *gpus: Gpu, step: float = 1.0
) -> list[Finding]:
    """What is said of a process after it was seen in these states, one after the other."""
    one = process()
    for one in processes:
        moment = NOON if history.latest is None else history.now + step
        history.add(snapshot(moment, *gpus, processes=(one,)))
    return process_findings(history, one)


def of_kind(found: list[Finding], kind: FindingKind) -> Finding:
    (finding,) = [one for one in found if one.kind is kind]
    return finding


# Idle


def test_an_idle_process_says_since_when_and_what_it_holds() -> None:
    history = History({})
    work, rest = (process(memory_used=int(43.8 * GIB), sm=sm) for sm in (40, 0))
    steps = int((3 * HOUR + 12 * MINUTE) / 10)
    (found,) = see(history, [work, *[rest] * (steps + 1)], step=10)
    assert (found.kind, found.severity) == (FindingKind.IDLE_PROCESS, Severity.NOTE)
    assert (found.short, found.brief) == ("idle 3h12m, holds 43.8 GiB", "idle 3h")
    assert found.sentence == "idle for 3 h 12 m, holds 43.8 GiB on GPU 0"
    assert (found.subject, found.since) == (rest.id, NOON + 10)
    assert found.evidence == (f"SM use 0 % in all {steps + 1:,} readings", "GPU memory 43.8 GiB")


def test_one_that_was_idle_at_the_first_look_was_so_at_least_since() -> None:
    (found,) = see(History({}), [process()] * 241)
    assert found.short == "idle ≥4m, holds 1.0 GiB"
    assert "at least 4 m (since gpumon started)" in found.sentence


def test_it_must_rest_for_a_minute_and_ten_readings() -> None:
    history = History({})
    assert see(history, [process(sm=3), *[process()] * 60]) == []
    assert see(history, [process()]) != []
    slow = History({})
    assert see(slow, [process(sm=3), *[process()] * 9], step=300) == []
    assert see(slow, [process()], step=300) != []


def test_nothing_is_said_of_one_that_works_or_has_ended_or_cannot_be_told() -> None:
    assert see(History({}), [process(sm=1)] * 120) == []
    assert see(History({}), [process(sm=None)] * 120) == []
    history = History({})
    gone = runs("python jax.py", 0.75)
    assert see(history, [gone]) != []
    history.add(snapshot(history.now + 1, gpu()))
    assert process_findings(history, gone) == []
    assert process_findings(History({}), process()) == []


def test_idleness_comes_from_the_driver_through_the_source(furnish: Callable[..., Room]) -> None:
    room = furnish(h100())
    (card,) = room.driver.cards
    history = History(conditions())
    room.open()

    def run(seconds: int, sm: int) -> list[Finding]:
        card.processes = [Owner(os.getpid(), memory=5 * GIB, sm=sm)]
        card.memory_used = 5 * GIB
        for _ in range(seconds):
            # The driver's clock stamps the samples of SM use.
            room.driver.set_clock(10.0 + room.clock.now)
            history.add(room.sample(1.0))
        return process_findings(history, known(history.latest).processes[0])

    assert run(20, 60) == []
    found = of_kind(run(90, 0), FindingKind.IDLE_PROCESS)
    assert found.short == "idle 1m, holds 5.0 GiB"
    assert found.since == pytest.approx(history.now - 90, abs=3)
    assert run(5, 60) == []


def test_under_mig_where_no_use_is_told_no_process_is_called_idle(
    furnish: Callable[..., Room],
) -> None:
    room = furnish(h100_mig())
    (card,) = room.driver.cards
    part = card.mig[0]
    card.processes = [
        Owner(
            os.getpid(),
            memory=GIB,
            gpu_instance=part.gpu_instance,
            compute_instance=part.compute_instance,
        )
    ]
    room.open()
    history = History(conditions())
    for _ in range(120):
        history.add(room.sample(1.0))
    (owner,) = known(history.latest).processes
    assert history.process_idle(owner.id) is None
    assert history.gpu_seconds(owner.user) == pytest.approx(119, abs=1)


# Growing


def growing(gib_per_hour: float, seconds: float, *, start: float = 10.0) -> list[GpuProcess]:
    """A process a second that takes memory in pieces of 20 MiB."""
    pieces = [int(gib_per_hour * n / 3600 * GIB / (20 * MIB)) for n in range(int(seconds) + 1)]
    return [process(memory_used=int(start * GIB) + n * 20 * MIB, sm=50) for n in pieces]


def test_a_leak_says_how_fast_it_grows_and_when_the_card_is_full() -> None:
    room = gpu(memory_free=int(0.8 * GIB))
    (found,) = see(History({}), growing(1.2, 20 * MINUTE), room)
    assert (found.kind, found.severity) == (FindingKind.GROWING, Severity.NOTE)
    assert (found.short, found.brief) == ("grows 1.2 GiB/h, full in 40 min", "grows")
    assert found.sentence == "grows 1.2 GiB/h: GPU full in about 40 min at this pace"
    assert found.evidence[0] == "GPU memory rose by 0.3 GiB in 15 m"
    assert "0.8 GiB free on GPU 0" in found.evidence


def test_five_minutes_must_have_been_seen() -> None:
    assert see(History({}), growing(2.0, 4.8 * MINUTE)) == []
    (found,) = see(History({}), growing(2.0, 5.2 * MINUTE))
    assert found.evidence[0].endswith("in 5 m")


def test_the_longest_time_that_shows_it_tells_most() -> None:
    (found,) = see(History({}), growing(1.2, 1.1 * HOUR))
    assert found.evidence[0] == "GPU memory rose by 1.1 GiB in 1 h 00 m"


@pytest.mark.parametrize(
    "course",
    [
        [process(sm=50)] * 600,
        [process(memory_used=(3 if n > 300 else 1) * GIB, sm=50) for n in range(600)],
        [process(memory_used=GIB + min(n, 200) * 100 * MIB, sm=50) for n in range(600)],
        [process(memory_used=GIB + (600 - n) * MIB, sm=50) for n in range(600)],
        [process(memory_used=GIB + (n % 60) * 50 * MIB, sm=50) for n in range(600)],
        [process(memory_used=GIB + n * 2**14, sm=50) for n in range(600)],
        [process(memory_used=None, sm=50)] * 600,
    ],
    ids=["steady", "a jump", "a load", "falling", "up and down", "next to nothing", "unknown"],
)
def test_nothing_else_is_called_growth(course: list[GpuProcess]) -> None:
    assert see(History({}), course) == []


def test_noise_alone_is_not_growth() -> None:
    # Seeded, so that a failure comes again.
    dice = random.Random(7)
    for _ in range(5):
        course = [process(memory_used=dice.randrange(8, 12) * GIB, sm=50) for _ in range(900)]
        assert see(History({}), course) == []


def test_what_has_stopped_growing_is_no_longer_said_to_grow() -> None:
    history = History({})
    course = growing(6.0, 10 * MINUTE)
    assert see(history, course) != []
    assert see(history, [course[-1]] * 300) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "room",
    [
        gpu(memory_free=60 * GIB),
        gpu(memory_free=None),
        gpu(memory_free=GIB, memory_unified=True),
        gpu(memory_free=GIB, mig_mode=True),
        gpu(memory_free=GIB, status=GpuStatus.LOST),
        gpu(memory_free=GIB, sampled_at=NOON),
        gpu(memory_free=GIB, index=1),
    ],
    ids=["far away", "unknown", "the host's", "sliced", "lost", "old values", "another GPU"],
)
def test_no_end_is_foretold_that_the_evidence_does_not_carry(room: Gpu) -> None:
    (found,) = see(History({}), growing(1.2, 20 * MINUTE), room)
    assert (found.short, found.sentence) == ("grows 1.2 GiB/h", "grows 1.2 GiB/h")


def test_of_a_process_on_two_cards_it_is_not_said_which_one_fills_up() -> None:
    course = [process(memory_used=10 * GIB + n * MIB, sm=50, gpus=(0, 1)) for n in range(20 * 60)]
    cards = (gpu(memory_free=GIB), gpu(index=1, memory_free=GIB))
    (found,) = see(History({}), course, *cards)
    assert found.short == "grows 7.0 GiB/h"


# Reserved


def details(environment: dict[str, str] | None = None, **known: Any) -> Details:
    told = None if environment is None else tuple(environment.items())
    return Details(id=process().id, environment=told, **known)


def runs(command: str, share: float, **changes: Any) -> GpuProcess:
    """A process that has this share of an 80 GiB card."""
    one = process(memory_used=int(share * 80 * GIB), sm=30)
    return msgspec.structs.replace(one, command=tuple(command.split()), **changes)


CARDS = (gpu(),)


def test_jax_with_its_three_quarters_is_recognised_with_the_settings_that_change_it() -> None:
    found = known(preallocation(runs("python train_jax.py --lr 3e-4", 0.752), None, CARDS))
    assert found.sentence.startswith("much of this memory may be unused: this looks like JAX")
    assert "75 % of GPU 0" in found.sentence
    assert "XLA_PYTHON_CLIENT_PREALLOCATE=false" in found.sentence
    assert "XLA_CLIENT_MEM_FRACTION" in found.sentence
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in found.sentence


def test_tensorflow_with_nearly_all_of_a_card_is_recognised() -> None:
    found = known(preallocation(runs("python -m tensorflow.serve", 0.93), None, CARDS))
    assert "TF_FORCE_GPU_ALLOW_GROWTH=true" in found.sentence
    assert "tf.config.experimental.set_memory_growth" in found.sentence


@pytest.mark.parametrize(
    ("command", "framework"),
    [
        ("python /home/ann/flax/imagenet/main.py", "JAX"),
        ("python -m MaxText.train", "JAX"),
        ("tensorflow_model_server --port=8500", "TensorFlow"),
        ("python tf_train.py", "TensorFlow"),
        ("python keras_unet.py", "TensorFlow"),
        ("python ajax.py", None),
        ("python train.py --tf32 1", None),
        ("python train.py", None),
        ("", None),
    ],
)
def test_a_framework_is_known_by_a_word_of_the_command(command: str, framework: str | None) -> None:
    share = 0.75 if framework == "JAX" else 0.93
    found = preallocation(runs(command, share), None, CARDS)
    assert (found is not None) == (framework is not None)
    assert found is None or found.short == f"preallocated by {framework}"


@pytest.mark.parametrize(
    ("script", "share", "environment", "seen"),
    [
        ("jax.py", 0.75, {}, True),
        ("jax.py", 0.78, {}, True),
        ("jax.py", 0.60, {}, False),
        ("jax.py", 0.90, {}, False),
        ("jax.py", 0.90, {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}, True),
        ("jax.py", 0.30, {"XLA_CLIENT_MEM_FRACTION": "0.30"}, True),
        ("jax.py", 0.75, {"XLA_CLIENT_MEM_FRACTION": ".30"}, False),
        ("jax.py", 0.75, {"XLA_CLIENT_MEM_FRACTION": "most"}, True),
        ("jax.py", 0.75, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}, False),
        ("jax.py", 0.75, {"XLA_PYTHON_CLIENT_PREALLOCATE": "true"}, True),
        ("jax.py", 0.75, {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, False),
        ("keras_unet.py", 0.95, {}, True),
        ("keras_unet.py", 0.85, {}, True),
        ("keras_unet.py", 0.80, {}, False),
        ("keras_unet.py", 0.95, {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}, False),
        ("keras_unet.py", 0.95, {"TF_FORCE_GPU_ALLOW_GROWTH": "false"}, True),
        ("keras_unet.py", 0.95, {"KERAS_BACKEND": "torch"}, False),
        ("keras_unet.py", 0.95, {"KERAS_BACKEND": "tensorflow"}, True),
    ],
)
def test_a_framework_is_judged_by_its_settings(
    script: str, share: float, environment: dict[str, str], seen: bool
) -> None:
    found = preallocation(runs(f"python {script}", share), details(environment), CARDS)
    assert (found is not None) == seen


def test_a_variable_or_the_name_of_an_environment_tells_as_much_as_the_command() -> None:
    one = runs("python train.py", 0.75)
    told = details({"XLA_PYTHON_CLIENT_PREALLOCATE": "true"})
    assert preallocation(one, told, CARDS) is not None
    named = msgspec.structs.replace(one, place=Workload(environment="jax-0.4"))
    assert preallocation(named, None, CARDS) is not None
    assert preallocation(one, details(executable="/opt/jax/bin/python3.12"), CARDS) is not None
    assert preallocation(one, details({"TF_CPP_MIN_LOG_LEVEL": "2"}), CARDS) is None


def test_without_a_share_of_a_whole_card_there_is_no_hint() -> None:
    one = runs("python jax.py", 0.75)
    assert preallocation(one, None, ()) is None
    assert preallocation(one, None, (gpu(memory_total=None),)) is None
    assert preallocation(one, None, (gpu(memory_unified=True),)) is None
    part = tuple(msgspec.structs.replace(use, instance=(1, 0)) for use in one.uses)
    assert preallocation(msgspec.structs.replace(one, uses=part), None, CARDS) is None
    unknown = process(memory_used=None)
    assert preallocation(unknown, details({"JAX_PLATFORMS": "cuda"}), CARDS) is None


def test_a_reservation_is_a_finding_of_the_process_with_its_evidence() -> None:
    history = History({})
    one = runs("python jax.py", 0.75)
    (found,) = see(history, [one])
    assert (found.kind, found.severity) == (FindingKind.PREALLOCATED, Severity.NOTE)
    assert found.short == "preallocated by JAX"
    assert found.sentence == known(preallocation(one, None, CARDS)).sentence
    assert found.evidence[0] == "holds 75 % of GPU 0"
    off = details({"XLA_PYTHON_CLIENT_PREALLOCATE": "false"})
    assert process_findings(history, one, details=off) == []


def test_the_value_of_a_known_setting_stands_in_the_evidence_and_no_other() -> None:
    history = History({})
    one = runs("python train.py", 0.75)
    see(history, [one])
    told = details({"XLA_PYTHON_CLIENT_PREALLOCATE": "\x1b[31mtrue"})
    (found,) = process_findings(history, one, details=told)
    assert "\x1b" not in found.sentence + "".join(found.evidence)
    assert "set in its environment: XLA_PYTHON_CLIENT_PREALLOCATE=�[31mtrue" in found.evidence
    (found,) = process_findings(history, one, details=details({"JAX_SOMETHING": "of my own"}))
    assert "set in its environment: JAX_SOMETHING" in found.evidence
