"""Which cards fit, and the one reason why another does not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.makers import nvidia
from gpumon.model.processes import GpuProcess
from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance, ReservationHolder, Unknown
from gpumon.scheduling.choose import Chooser, UncertainAllocationError, allowance, judge_over_time
from gpumon.scheduling.eligibility import Allowance, Candidate, Circumstances, judge
from gpumon.scheduling.requirements import Requirements
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

ANY = Requirements()


def reason(
    card: Gpu,
    asked: Requirements = ANY,
    *processes: GpuProcess,
    circumstances: Circumstances | None = None,
) -> str | None:
    taken = snapshot(NOON, card, processes=processes)
    (verdict,) = judge(taken, asked, circumstances or Circumstances())
    return None if verdict.refusal is None else verdict.refusal.sentence


IDLE = gpu(memory_used=0, memory_free=80 * GIB, memory_reserved=GIB // 2)


def test_an_empty_gpu_meets_empty_requirements() -> None:
    assert reason(IDLE) is None


@pytest.mark.parametrize("status", [one for one in GpuStatus if one is not GpuStatus.OK])
def test_a_card_that_does_not_answer_never_fits(status: GpuStatus) -> None:
    assert reason(gpu(status=status)) is not None


def hopeless(asked: Requirements, *cards: Gpu, environment: dict[str, str] | None = None) -> bool:
    chooser = Chooser(asked, environment or {})
    return chooser.hopeless(chooser.judge(snapshot(NOON, *cards)))


@pytest.mark.parametrize("status", [one for one in GpuStatus if one is not GpuStatus.OK])
def test_a_gpu_without_answer_may_qualify_later_unless_its_type_is_wrong(status: GpuStatus) -> None:
    assert not hopeless(ANY, gpu(status=status))
    assert hopeless(Requirements(models=("a100",)), gpu(status=status))
    assert hopeless(Requirements(least=2, most=2), gpu(status=status))


@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        ({"name": None}, Requirements(models=("a100",))),
        ({}, Requirements(architectures=("hopper",))),
        ({}, Requirements(capability=(9, 0))),
        ({"memory_total": None}, Requirements(total=GIB)),
        ({"unknown": {"mig_mode": Unknown.NO_ANSWER}}, ANY),
        ({"unknown": {"mig_mode": Unknown.NO_ANSWER}}, Requirements(mig=True)),
    ],
)
def test_an_unreadable_value_may_be_read_later(
    changes: dict[str, object], asked: Requirements
) -> None:
    assert reason(gpu(**changes), asked) is not None
    assert not hopeless(asked, gpu(**changes))


def test_a_gpu_that_never_answered_may_be_any_uuid() -> None:
    nameless = gpu(uuid="index-0", name=None, status=GpuStatus.LOST)
    by_uuid = Requirements(only=parse_selection("GPU-1a2b"))
    assert not hopeless(by_uuid, nameless)
    assert not hopeless(ANY, nameless, environment={"CUDA_VISIBLE_DEVICES": "GPU-1a2b"})
    assert hopeless(Requirements(only=parse_selection("1")), nameless, gpu(index=1, mig_mode=True))


@pytest.mark.parametrize(("name", "passing"), [(None, True), ("NVIDIA A100", False)])
def test_an_order_that_a_lost_gpu_makes_uncertain_may_pass(name: str | None, passing: bool) -> None:
    chooser = Chooser(ANY, {"CUDA_VISIBLE_DEVICES": "0"})
    with pytest.raises(UncertainAllocationError) as told:
        chooser.judge(snapshot(NOON, gpu(), gpu(index=1, name=name)))
    assert told.value.passing == passing
    assert ("the model of a GPU is unknown" in told.value.sentence) == passing


def test_cards_that_were_there_may_come_back() -> None:
    chooser = Chooser(Requirements(least=2, most=2, only=parse_selection("0,1")), {})
    assert not chooser.hopeless(chooser.judge(snapshot(NOON, gpu(), gpu(index=1))))
    assert not chooser.hopeless(chooser.judge(snapshot(NOON, gpu())))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Requirements(least=3, most=3), "this machine has 2 GPUs; 3 GPUs requested."),
        (Requirements(mig=True), "this machine has no MIG device; 1 MIG device requested."),
        (Requirements(least=2, most=2), "only 1 GPU fits; 2 GPUs requested."),
        (
            Requirements(least=2, most=2, never=parse_selection("0")),
            "only 1 GPU can fit; 2 GPUs requested.",
        ),
        (Requirements(free=80 * GIB), "no GPU fits; 1 GPU requested."),
        (Requirements(models=("a100",)), "no GPU fits; 1 GPU requested."),
        (Requirements(stable=60.0), "the GPUs have not been observed for 1m yet; 1 GPU requested."),
    ],
)
def test_the_refusal_says_why_nothing_was_chosen(asked: Requirements, told: str) -> None:
    chooser = Chooser(asked, {})
    busy = gpu(index=1, memory_used=40 * GIB, memory_free=40 * GIB)
    judged = chooser.judge(snapshot(NOON, gpu(), busy, processes=(process(7, gpus=(1,)),)))
    assert chooser.refusal(judged) == told


@pytest.mark.parametrize(
    ("changes", "asked", "words"),
    [
        ({}, Requirements(models=("a100",)), "it is NVIDIA H100 80GB HBM3, not a100"),
        ({}, Requirements(models=("a100", "h100")), None),
        ({"name": None}, Requirements(models=("a100",)), "it is unknown, not a100"),
        ({"architecture": "Ada"}, Requirements(architectures=("hopper",)), "is Ada, not hopper"),
        ({"architecture": "Hopper"}, Requirements(architectures=("hopper",)), None),
        ({"compute_capability": "8.9"}, Requirements(capability=(9, 0)), "is 8.9, 9.0 required"),
        ({"compute_capability": "10.0"}, Requirements(capability=(9, 0)), None),
        ({}, Requirements(capability=(9, 0)), "capability is unknown, 9.0 required"),
        ({}, Requirements(total=81 * GIB), "80.0 GiB in all, 81.0 GiB required"),
        ({"memory_total": None}, Requirements(total=GIB), "an unknown amount in all"),
        ({}, Requirements(free=81 * GIB), "80.0 GiB free, 81.0 GiB required"),
        ({"memory_free": None}, Requirements(free=GIB), "an unknown amount free"),
        ({"utilization_gpu": 11}, Requirements(utilization=10), "11 % utilised, at most 10 %"),
        ({"utilization_gpu": 10}, Requirements(utilization=10), None),
        ({"utilization_gpu": None}, Requirements(utilization=10), "utilisation is unknown"),
        ({"temperature_gpu": 61}, Requirements(temperature=60), "61 °C, at most 60 °C required"),
        ({"temperature_gpu": None}, Requirements(temperature=60), "temperature is unknown"),
        ({"compute_mode": "Prohibited"}, ANY, "compute mode prohibits"),
        ({"mig_mode": True}, ANY, "--mig chooses among those"),
        ({}, Requirements(mig=True), "it has no MIG device"),
        (
            {"memory_used": GIB // 2},
            ANY,
            "0.5 GiB held by no process that the driver lists; --free",
        ),
        ({"memory_used": GIB // 4}, ANY, None),
        ({"memory_used": int(0.75 * GIB), "memory_reserved": None}, ANY, None),
        ({"memory_used": GIB, "memory_reserved": None}, ANY, "1.0 GiB held by no process"),
        ({"utilization_gpu": 60}, ANY, "60 % busy, by nobody that the driver lists"),
        ({"utilization_gpu": None}, ANY, "its utilisation is unknown"),
        ({"remapped_rows_pending": True}, ANY, "replaced at the next reset"),
        ({"sampled_at": NOON - 30}, ANY, "its values were read 30s ago"),
        ({"memory_used": None}, ANY, "how much of its memory is in use is unknown"),
        ({"unknown": {"processes": Unknown.NO_PERMISSION}}, ANY, "who computes on it is unknown"),
        ({}, Requirements(only=parse_selection("1-3")), "is not among --gpus"),
        ({}, Requirements(never=parse_selection("0")), "--not names it"),
    ],
)
def test_one_reason_is_reported(
    changes: dict[str, object], asked: Requirements, words: str | None
) -> None:
    given = {"memory_used": 0, "memory_free": 80 * GIB, "memory_reserved": 0, **changes}
    told = reason(gpu(**given), asked)
    assert (told is None) == (words is None)
    assert told is None or (words is not None and words in told)


def test_computing_processes_occupy_a_gpu_and_graphics_processes_do_not() -> None:
    assert reason(IDLE, ANY, process(7, user="bo", memory_used=GIB)) == (
        "bo's a process (7) holds 1.0 GiB"
    )
    drawn = gpu(memory_used=GIB, memory_free=79 * GIB, memory_reserved=0)
    shown = replace(drawn, display_active=True)
    assert reason(shown, ANY, process(7, type_="G", memory_used=GIB)) is None
    renders = reason(drawn, ANY, process(7, type_="G", memory_used=GIB))
    assert renders == "processes that draw hold 1.0 GiB"


def test_with_free_or_processes_a_card_may_be_shared() -> None:
    shared = gpu(memory_used=GIB, memory_free=79 * GIB)
    other = process(7, memory_used=GIB)
    assert reason(shared, Requirements(free=70 * GIB), other) is None
    assert reason(shared, Requirements(processes=1), other) is None
    told = reason(shared, Requirements(processes=1), other, process(8, memory_used=2 * GIB))
    assert told == (
        "2 processes compute on it, at most 1 allowed; "
        "ann's a process (8) holds 2.0 GiB, ann's a process (7) holds 1.0 GiB"
    )


def test_a_gpu_in_exclusive_mode_with_a_process_cannot_be_shared() -> None:
    card = gpu(compute_mode="Exclusive_Process")
    assert reason(card, Requirements(free=GIB), process(7)) is not None
    assert reason(card, Requirements(free=GIB)) is None


@pytest.mark.parametrize("wanted", [ANY, Requirements(free=70 * GIB)], ids=["free", "70 GiB"])
def test_own_processes_count_as_free_only_if_requested(wanted: Requirements) -> None:
    card = gpu(memory_used=60 * GIB, memory_free=20 * GIB, utilization_gpu=90)
    mine = replace(process(7, memory_used=60 * GIB), uid=1000)
    me = Circumstances(uid=1000)
    generous = replace(wanted, mine_is_free=True)
    assert reason(card, wanted, mine, circumstances=me) is not None
    assert reason(card, generous, mine, circumstances=me) is None
    assert reason(card, generous, mine, circumstances=Circumstances(uid=1001)) is not None


HELD = Circumstances(held={"GPU-0": ReservationHolder("bo", 42, NOON, "python train.py")})


def test_a_reserved_gpu_names_its_holder_and_since_when() -> None:
    told = known(reason(IDLE, circumstances=HELD))
    assert told.startswith("reserved by bo for ")
    assert told.endswith(", gpumon run 42: python train.py")


def test_gpus_that_the_environment_excludes_are_not_chosen() -> None:
    only_other = Circumstances(
        Allowance(frozenset({"GPU-1"}), {nvidia.MAKER: "CUDA_VISIBLE_DEVICES leaves it"})
    )
    assert reason(IDLE, circumstances=only_other) == "CUDA_VISIBLE_DEVICES leaves it"


def test_each_mig_device_is_judged_by_what_is_on_it() -> None:
    slices = tuple(
        MigInstance(
            f"MIG-{n}",
            index=n,
            gpu_instance=7 + n,
            compute_instance=0,
            memory_total=10 * GIB,
            memory_used=used * GIB,
            memory_free=(10 - used) * GIB,
        )
        for n, used in enumerate((0, 4))
    )
    card = gpu(mig=slices, mig_mode=True, memory_used=4 * GIB)
    first, second = judge(snapshot(NOON, card), Requirements(mig=True), Circumstances())
    assert (first.candidate.label, first.refusal) == ("MIG 0:0", None)
    assert known(second.refusal).kind == "memory"
    verdicts = judge(snapshot(NOON, card), Requirements(mig=True), HELD)
    assert [known(one.refusal).kind for one in verdicts] == ["reserved"] * 2


def test_a_gpu_busy_a_moment_ago_is_not_stable() -> None:
    busy = snapshot(NOON - 20, replace(IDLE, utilization_gpu=90))
    asked = Requirements(utilization=10)
    looks = [(one.time, judge(one, asked, Circumstances())) for one in (busy, snapshot(NOON, IDLE))]
    assert known(judge_over_time(looks)[0].refusal).sentence == (
        "it fits now, but 20s ago: 90 % utilised, at most 10 % required"
    )
    assert judge_over_time(looks[1:])[0].refusal is None


def test_a_gpu_that_was_reserved_but_unused_stayed_free() -> None:
    looks = [
        (time, judge(snapshot(time, IDLE), ANY, circumstances))
        for time, circumstances in (
            (NOON - 2, Circumstances(reserved_for={"GPU-0": "ann has waited for it"})),
            (NOON - 1, HELD),
            (NOON, Circumstances()),
        )
    ]
    assert judge_over_time(looks)[0].refusal is None


def test_a_gpu_busy_in_the_last_second_is_sampled_again() -> None:
    chooser = Chooser(ANY, {})
    (verdict,) = chooser.judge(snapshot(NOON, replace(IDLE, utilization_gpu=60)))
    assert verdict.refusal is not None
    assert 0 < chooser.left() <= 2
    (verdict,) = chooser.judge(snapshot(NOON + 1, IDLE))
    assert (verdict.refusal, chooser.left()) == (None, 0)


AMD = gpu(index=1, uuid="GPU-a", name="AMD Instinct MI210", memory_used=0, memory_free=80 * GIB)
ARC = gpu(index=2, uuid="PCI-0000:03:00.0", name="Intel Arc B580", memory_used=0)
OWN = gpu(
    index=3,
    uuid="PCI-0000:c4:00.0",
    name="AMD Radeon 780M",
    memory_used=0,
    memory_free=20 * GIB,
    memory_unified=True,
)


def fitting(asked: Requirements, *cards: Gpu) -> list[int]:
    verdicts = judge(snapshot(NOON, *cards), asked, Circumstances())
    return [one.candidate.gpu.index for one in verdicts if one.refusal is None]


def test_a_job_gets_gpus_of_one_maker() -> None:
    # A CUDA program that is given another maker's GPU runs on the processor without a word.
    assert fitting(ANY, IDLE, AMD, ARC) == [0]
    verdicts = judge(snapshot(NOON, IDLE, AMD, ARC), ANY, Circumstances())
    assert [one.refusal and one.refusal.sentence for one in verdicts][1:] == [
        "it is AMD's, and a job gets NVIDIA's: --backend amdgpu selects it",
        "it is Intel's, and a job gets NVIDIA's: --backend intel selects it",
    ]


@pytest.mark.parametrize(
    ("asked", "gpus", "indices"),
    [
        (Requirements(only=parse_selection("1")), (IDLE, AMD, ARC), [1]),
        (Requirements(models=("mi210",)), (IDLE, AMD, ARC), [1]),
        (Requirements(maker="AMD"), (IDLE, AMD, ARC), [1]),
        (Requirements(only=parse_selection("0-1"), least=2, most=2), (IDLE, AMD, ARC), [0]),
        (ANY, (replace(AMD, index=0), ARC), [0]),
        (ANY, (AMD, ARC), []),
        (Requirements(maker="AMD"), (AMD, ARC), [1]),
        (ANY, (replace(OWN, index=0),), [0]),
        (ANY, (replace(AMD, index=0), OWN), [0]),
        (Requirements(only=parse_selection("3")), (AMD, OWN), [3]),
    ],
    ids=[
        *("by number", "by model", "by maker", "the first of two", "without NVIDIA's"),
        *("the index 0 is kept for NVIDIA's", "of AMD while NVIDIA's driver is away"),
        *("a processor's alone", "a processor's beside another", "a processor's by number"),
    ],
)
def test_a_job_gets_these_of_several_makers_gpus(
    asked: Requirements, gpus: tuple[Gpu, ...], indices: list[int]
) -> None:
    assert fitting(asked, *gpus) == indices


def test_a_processors_gpu_does_not_fit_later() -> None:
    verdicts = judge(snapshot(NOON, replace(AMD, index=0), OWN), ANY, Circumstances())
    refused = known(verdicts[1].refusal)
    assert (refused.kind, refused.passing) == ("integrated", False)


def test_what_the_environment_allows_decides_whose_a_jobs_gpus_are() -> None:
    machine = snapshot(NOON, IDLE, AMD)
    for environment, indices in (
        ({"ROCR_VISIBLE_DEVICES": AMD.uuid}, [1]),
        ({"CUDA_VISIBLE_DEVICES": ""}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "0"}, [0]),
        ({}, [0]),
    ):
        verdicts = judge(machine, ANY, Circumstances(allowance(environment, machine.gpus)))
        fits = [one.candidate.gpu.index for one in verdicts if one.refusal is None]
        assert fits == indices, environment


def test_a_gpu_or_a_mig_device_is_found_again_by_its_uuid() -> None:
    first, second = (MigInstance(f"MIG-{number}", number) for number in (1, 2))
    whole, parted = gpu(index=0), gpu(index=1, mig=(first, second))
    later = replace(parted, mig=(replace(second, memory_used=5), replace(first, memory_used=3)))
    now = snapshot(NOON, later, whole)
    assert Candidate(whole).seen_in(now) == Candidate(whole)
    assert Candidate(parted).seen_in(now) == Candidate(later)
    for mig, memory in ((first, 3), (second, 5)):
        seen = Candidate(parted, mig).seen_in(now)
        assert seen is not None
        assert (seen.gpu, seen.uuid, seen.memory_used) == (later, mig.uuid, memory)
    assert Candidate(parted, MigInstance("MIG-3", 3)).seen_in(now) is None
    assert Candidate(gpu(index=2), first).seen_in(now) is None
