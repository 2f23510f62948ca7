"""Of the cards that fit the best are taken."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpumon.makers.nvidia.visible_devices import visible_devices
from gpumon.model.processes import GpuProcess
from gpumon.model.snapshot import Gpu, GpuStatus
from gpumon.model.topology import NO_KNOWN_LINKS, Joint, Link, Links
from gpumon.scheduling.eligibility import Circumstances, judge
from gpumon.scheduling.ranking import GpuChoice, choose
from gpumon.scheduling.requirements import Requirements
from gpumon.scheduling.select import as_env, as_index, as_uuid, doubt_of_selection, table
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.known import known

SHARED = Requirements(free=GIB)


def chosen(*gpus: Gpu, **given: Any) -> list[int] | None:
    choice = taken(*gpus, **given)
    return None if choice is None else [one.gpu.index for one in choice.candidates]


def taken(
    *gpus: Gpu,
    asked: Requirements = SHARED,
    processes: tuple[GpuProcess, ...] = (),
    links: Links = NO_KNOWN_LINKS,
) -> GpuChoice | None:
    verdicts = judge(snapshot(NOON, *gpus, processes=processes), asked, Circumstances())
    return choose(verdicts, asked, links)


def free(index: int, gibibytes: int, **changes: object) -> Gpu:
    return gpu(index=index, memory_free=gibibytes * GIB, **changes)


def asking(number: int, most: int | None = None) -> Requirements:
    return Requirements(least=number, most=most or number, free=GIB)


def test_the_tightest_fit_is_chosen_then_the_idlest_the_coolest_the_first() -> None:
    assert chosen(free(0, 80), free(1, 24), free(2, 40)) == [1]
    assert chosen(free(0, 80, utilization_gpu=5), free(1, 80), free(2, 80)) == [1]
    assert chosen(free(0, 80, temperature_gpu=70), free(1, 80), free(2, 80)) == [1]
    assert chosen(free(0, 80), free(1, 80)) == [0]


def test_an_empty_gpu_is_preferred_to_a_shared_one() -> None:
    cards = free(0, 20), free(1, 80)
    assert chosen(*cards, processes=(process(7, gpus=(0,)),)) == [1]
    assert chosen(*cards, processes=(process(7, gpus=(0, 1)),)) == [0]


def test_too_few_gpus_are_no_choice_and_a_range_takes_what_there_is() -> None:
    cards = [free(index, 80) for index in range(3)]
    assert chosen(*cards, asked=asking(4)) is None
    assert chosen(*cards, asked=asking(1, 8)) == [0, 1, 2]
    assert chosen(*cards, asked=asking(2, 2)) == [0, 1]
    assert chosen(asked=asking(1)) is not None


def joined(pairs: dict[tuple[int, int], Joint]) -> Links:
    return Links({frozenset((f"GPU-{a}", f"GPU-{b}")): joint for (a, b), joint in pairs.items()})


def test_several_gpus_are_chosen_by_their_links_and_the_reason_says_so() -> None:
    pairs = {
        (a, b): Joint(Link.SWITCH if a // 2 == b // 2 else Link.SYSTEM)
        for a in range(4)
        for b in range(a + 1, 4)
    }
    cards = [free(index, 80) for index in range(4)]
    busy = free(0, 80, utilization_gpu=50), *cards[1:]
    assert chosen(*busy, asked=asking(2), links=joined(pairs)) == [2, 3]
    choice = known(taken(*busy, asked=asking(2), links=joined(pairs)))
    assert choice.reason == "GPU 2, GPU 3 of 4 that fit; joined by one PCIe switch"
    pairs[1, 2] = Joint(Link.SYSTEM, Link.NVLINK)
    assert chosen(*busy, asked=asking(2), links=joined(pairs)) == [1, 2]
    choice = known(taken(*busy, asked=asking(2)))
    assert choice.reason.endswith("the links between them are unknown")


def test_where_nvlink_joins_all_the_bus_decides() -> None:
    pairs = {
        (a, b): Joint(Link.HOST if a // 4 == b // 4 else Link.SYSTEM, Link.NVLINK)
        for a in range(8)
        for b in range(a + 1, 8)
    }
    cards = [free(index, 80) for index in (0, 1, 3, 4, 5, 6, 7)]
    assert chosen(*cards, asked=asking(4), links=joined(pairs)) == [4, 5, 6, 7]


def test_closer_links_are_no_reason_to_share_a_gpu() -> None:
    near = joined({(0, 1): Joint(Link.SWITCH, Link.NVLINK)})
    cards = [free(index, 80) for index in range(3)]
    assert chosen(*cards, asked=asking(2), links=near) == [0, 1]
    shared = (process(7, gpus=(0,)),)
    assert chosen(*cards, asked=asking(2), links=near, processes=shared) == [1, 2]


def test_the_table_wraps_at_words_and_names_models_if_they_differ() -> None:
    def rows(*gpus: Gpu, columns: int | None = None) -> list[str]:
        asked = Requirements(free=90 * GIB)
        busy = (process(7, gpus=(0,), user="ann"),)
        verdicts = judge(snapshot(NOON, *gpus, processes=busy), asked, Circumstances())
        return table(verdicts, columns=columns).splitlines()

    alike = free(0, 1), free(1, 2)
    held = "1.0 GiB free, 90.0 GiB required; ann's a process (7) holds 1.0 GiB"
    assert rows(*alike) == [f"  GPU 0  {held}", "  GPU 1  2.0 GiB free, 90.0 GiB required"]
    assert rows(*alike, columns=50) == [
        "  GPU 0  1.0 GiB free, 90.0 GiB required; ann's a",
        "         process (7) holds 1.0 GiB",
        "  GPU 1  2.0 GiB free, 90.0 GiB required",
    ]
    assert rows(alike[0], free(1, 2, name="T4"))[1].split("  ")[1:3] == ["GPU 1", "T4"]
    assert rows(*alike, columns=20) == rows(*alike)


machines = st.lists(
    st.builds(
        gpu,
        name=st.sampled_from(["H100", "T400"]),
        memory_free=st.integers(0, 80).map(lambda size: size * GIB),
        status=st.sampled_from([GpuStatus.OK, GpuStatus.OK, GpuStatus.LOST]),
        mig_mode=st.sampled_from([None, False, True]),
    ),
    min_size=1,
    max_size=6,
).map(lambda cards: [replace(card, index=n, uuid=f"GPU-{n}{n}ab") for n, card in enumerate(cards)])


@given(machines, st.integers(1, 4), st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST"]))
def test_cuda_resolves_the_output_to_the_chosen_gpus(
    gpus: list[Gpu], number: int, order: str | None
) -> None:
    choice = taken(*gpus, asked=asking(1, number))
    if choice is None:
        return
    wanted = [one.uuid for one in choice.candidates]
    assert len(set(wanted)) == len(wanted) <= number
    # UUIDs are right under any order, whatever cards the machine has.
    meaning = visible_devices(as_uuid(choice.candidates, gpus), order, gpus)
    assert [device.uuid for device in meaning.devices] == wanted
    assert meaning.certain
    variables = dict(line.split("=") for line in as_env(choice.candidates, gpus).splitlines())
    assert variables["CUDA_VISIBLE_DEVICES"] == as_index(choice.candidates, gpus)
    meaning = visible_devices(
        variables["CUDA_VISIBLE_DEVICES"], variables["CUDA_DEVICE_ORDER"], gpus
    )
    assert [device.uuid for device in meaning.devices] == wanted
    # Where CUDA may count otherwise that is said.
    assert meaning.certain == (not doubt_of_selection(choice.candidates, gpus, by_index=True))
