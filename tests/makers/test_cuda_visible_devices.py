"""What a program sees under ``CUDA_VISIBLE_DEVICES``."""

from __future__ import annotations

import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.makers.nvidia.visible_devices import visible_devices
from gpumon.makers.visible_devices import assignment_line
from gpumon.model.snapshot import Gpu, GpuStatus, MigInstance
from tests.build import gpu

UUIDS = (
    "GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1",
    "GPU-9e8d35e3-a134-0fdd-0e01-23811fdbd293",
    "GPU-e429a63e-c61c-4795-b757-5132caeb8e70",
    "GPU-eee1dfbc-0a0f-6ad8-5ff6-dc942a8b9d98",
    "GPU-bbcd6503-5150-4e92-c266-97cc4390d04e",
    "GPU-472ea263-58d7-410d-cc82-f7fdece5bd28",
)
ALIKE = tuple(gpu(index=index, uuid=uuid) for index, uuid in enumerate(UUIDS))
MIXED = (*ALIKE[:2], gpu(index=2, uuid=UUIDS[2], name="NVIDIA T400"))
MIG = gpu(
    index=0,
    uuid=UUIDS[0],
    mig_mode=True,
    mig=(
        MigInstance("MIG-c0ffee00-1111", index=0, gpu_instance=7, compute_instance=0),
        MigInstance("MIG-c0ffee22-2222", index=1, gpu_instance=9, compute_instance=0),
    ),
)


def indices(
    value: str | None, gpus: tuple[Gpu, ...] = ALIKE, order: str | None = None
) -> list[int]:
    return [device.gpu_index for device in visible_devices(value, order, gpus).devices]


@pytest.mark.parametrize(
    ("value", "seen", "why"),
    [
        (None, [0, 1, 2, 3, 4, 5], ""),
        ("0", [0], ""),
        ("2,1", [2, 1], ""),
        ("3, 1 ,0", [3, 1, 0], ""),
        ("", [], "CUDA_VISIBLE_DEVICES is empty"),
        ("0,2,-1,1", [0, 2], 'the list ends at "-1": there is no GPU -1'),
        ("-1", [], "there is no GPU -1"),
        ("1,6,2", [1], 'the list ends at "6": there is no GPU 6'),
        ("9" * 5000, [], "there is no GPU 9999"),
        ("one,two,3,4", [], 'the list ends at "one": it is neither an index nor a UUID'),
        ("4,3,two,one", [4, 3], 'ends at "two"'),
        ("NoDevFiles", [], "neither an index nor a UUID"),
        (" ", [], 'ends at " "'),
        ("0,,1", [0], 'ends at ""'),
        ("0,1,", [0, 1], 'ends at ""'),
        ("0,1,2,1", [], '"1" is named twice, so CUDA shows no GPU'),
        ("0,-1,0", [0], 'ends at "-1"'),
        ("GPU-9e8d35e3", [1], ""),
        (f"{UUIDS[3]},{UUIDS[0]}", [3, 0], ""),
        ("GPU-e4,GPU-9e8d35e3", [2, 1], ""),
        ("GPU-123,GPU-9e8d35e3", [], 'ends at "GPU-123": there is no such GPU'),
        ("GPU-9e8d35e3,GPU-e,GPU-47", [1], 'ends at "GPU-e": it fits several GPUs'),
        ("GPU-9e8d35e3,GPU-47,GPU-9e", [], '"GPU-9e" is named twice'),
        ("GPU-9e8d35e3,2", [1], "a list that begins with GPU- holds nothing else"),
        ("2,GPU-9e8d35e3", [2], "indices and UUIDs do not mix"),
        ("gpu-9e8d35e3", [], "neither an index nor a UUID"),
        ("MIG-c0ffee00-1111", [], "there is no such device"),
        ("MIG-GPU-9e8d35e3/1/0", [], "there is no such device"),
    ],
)
def test_what_a_list_means_for_certain(value: str | None, seen: list[int], why: str) -> None:
    meaning = visible_devices(value, None, ALIKE)
    assert meaning.certain
    assert [device.gpu_index for device in meaning.devices] == seen
    assert [device.ordinal for device in meaning.devices] == list(range(len(seen)))
    assert [device.uuid for device in meaning.devices] == [UUIDS[index] for index in seen]
    assert why in meaning.why
    assert bool(why) == bool(meaning.why)


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        ("1gpu2,2ampere", [1, 2]),
        ("2,+3,-0,5", [2, 3, 0, 5]),
        ("01", [1]),
        ("0x1", [0]),
        ("GPU-9e8d35e3, GPU-47", [1]),
    ],
)
def test_what_no_document_says_is_doubted(value: str, seen: list[int]) -> None:
    meaning = visible_devices(value, None, ALIKE)
    assert not meaning.certain
    assert [device.gpu_index for device in meaning.devices] == seen
    assert meaning.sentence.startswith("probably ")
    assert "is not documented" in meaning.why


def test_the_sentence_names_each_card() -> None:
    assert visible_devices("3,1", None, ALIKE).sentence == "cuda:0 is GPU 3, cuda:1 is GPU 1"
    assert visible_devices(None, None, ALIKE).sentence == "cuda:0 to cuda:5 are GPU 0 to 5"
    assert visible_devices("2,3,4", None, ALIKE).sentence == "cuda:0 to cuda:2 are GPU 2 to 4"
    assert visible_devices("2,3", None, ALIKE).sentence == "cuda:0 is GPU 2, cuda:1 is GPU 3"
    assert visible_devices("", None, ALIKE).sentence == "no GPU"
    assert visible_devices(None, None, ()).sentence == "no GPU"


def test_among_different_cards_only_cuda_knows_which_is_fastest() -> None:
    for value, sentence in (
        (None, "all 3 GPUs, in an order that cannot be known here"),
        ("0", "1 of the 3 GPUs, which cannot be known here"),
        ("2,0", "2 of the 3 GPUs, which cannot be known here"),
    ):
        meaning = visible_devices(value, None, MIXED)
        assert (meaning.devices, meaning.certain) == ((), False)
        assert meaning.sentence == sentence
        assert "without CUDA_DEVICE_ORDER=PCI_BUS_ID" in meaning.why
    assert visible_devices("", None, MIXED).certain
    assert visible_devices(None, None, (gpu(name=None),)).certain
    assert not visible_devices(
        None, None, (gpu(index=0, name=None), gpu(index=1, name=None))
    ).certain


def test_the_order_of_the_bus_and_uuids_make_different_cards_certain() -> None:
    assert indices("2,0", MIXED, "PCI_BUS_ID") == [2, 0]
    assert visible_devices("2,0", "PCI_BUS_ID", MIXED).certain
    assert not visible_devices("2,0", "FASTEST_FIRST", MIXED).certain
    assert indices(UUIDS[2], MIXED) == [2]
    assert visible_devices(UUIDS[2], None, MIXED).certain


def test_the_cards_may_come_in_any_order() -> None:
    assert indices("3,1", ALIKE[::-1]) == [3, 1]


@pytest.mark.parametrize(
    ("value", "uuid", "certain", "why"),
    [
        ("MIG-c0ffee22-2222", "MIG-c0ffee22-2222", True, ""),
        ("MIG-c0ffee22", "MIG-c0ffee22-2222", False, "for a whole UUID is not documented"),
        (f"MIG-{UUIDS[0]}/9/0", "MIG-c0ffee22-2222", True, ""),
        (
            "MIG-c0ffee22-2222,MIG-c0ffee00-1111",
            "MIG-c0ffee22-2222",
            True,
            "one MIG device at most",
        ),
        (None, "MIG-c0ffee00-1111", False, "GPU 0 has MIG on: of its devices CUDA takes the first"),
        ("0", "MIG-c0ffee00-1111", False, "CUDA may number the GPUs differently"),
        ("1,0", "MIG-c0ffee00-1111", False, "and no other GPU"),
        (UUIDS[0], "MIG-c0ffee00-1111", False, "GPU 0 has MIG on"),
    ],
)
def test_of_a_card_with_mig_one_device_is_seen(
    value: str | None, uuid: str, certain: bool, why: str
) -> None:
    meaning = visible_devices(value, None, (MIG, ALIKE[1]))
    assert [device.uuid for device in meaning.devices] == [uuid]
    assert meaning.certain == certain
    assert why in meaning.why


def test_mig_devices_are_named_with_their_card() -> None:
    meaning = visible_devices("MIG-c0ffee22-2222", None, (MIG,))
    assert (meaning.sentence, meaning.why) == ("cuda:0 is MIG 0:1", "")
    assert "otherwise" not in visible_devices("0", None, (MIG,)).why
    assert (meaning.devices[0].gpu_uuid, meaning.devices[0].mig_index) == (UUIDS[0], 1)
    for value, why in (("MIG-c0", "fits several"), ("MIG-GPU-99/9/4", "no such device")):
        assert visible_devices(value, None, (MIG,)).devices == ()
        assert why in visible_devices(value, None, (MIG,)).why


def test_a_card_with_mig_on_and_no_device_is_not_seen() -> None:
    bare = gpu(index=0, uuid=UUIDS[0], mig_mode=True)
    meaning = visible_devices(",".join(UUIDS[:2]), None, (bare, ALIKE[1]))
    assert [device.gpu_index for device in meaning.devices] == [1]
    assert meaning.why == "GPU 0 has MIG on and no MIG device"


def test_a_lost_card_leaves_the_count_in_doubt() -> None:
    lost = (*ALIKE[:2], gpu(index=2, uuid=UUIDS[2], status=GpuStatus.LOST), ALIKE[3])
    assert not visible_devices("3", None, lost).certain
    assert not visible_devices(UUIDS[2], None, lost).certain
    assert visible_devices(UUIDS[3], None, lost).certain
    assert visible_devices(None, None, lost).why == "GPU 2 is lost, and CUDA may not count it"


def test_what_stands_in_somebody_s_environment_is_safe_to_print() -> None:
    why = visible_devices("\x1b[31m" + "x" * 500, None, ALIKE).why
    assert "\x1b" not in why
    assert len(why) < 150


def test_a_line_for_a_shell() -> None:
    assert assignment_line(UUIDS[:2], ()) == f"CUDA_VISIBLE_DEVICES={UUIDS[0]},{UUIDS[1]}"
    assert assignment_line(["MIG-c0ffee00-1111"], ()) == "CUDA_VISIBLE_DEVICES=MIG-c0ffee00-1111"
    assert assignment_line((), ()) == "CUDA_VISIBLE_DEVICES=''"
    assert shlex.split(assignment_line(["a; rm b"], ())) == ["CUDA_VISIBLE_DEVICES=a; rm b"]


machines = st.lists(
    st.builds(
        gpu,
        uuid=st.sampled_from(UUIDS),
        name=st.sampled_from(["H100", "T400", None]),
        mig=st.sampled_from([(), MIG.mig, MIG.mig[1:]]),
        mig_mode=st.sampled_from([True, False, None]),
        status=st.sampled_from([GpuStatus.OK, GpuStatus.LOST, GpuStatus.NO_ANSWER]),
    ),
    unique_by=lambda card: card.uuid,
    max_size=5,
).map(lambda cards: tuple(gpu_at(index, card) for index, card in enumerate(cards)))
entries = st.one_of(
    st.integers(-2, 6).map(str),
    st.sampled_from(UUIDS),
    st.builds(lambda uuid, size: uuid[:size], st.sampled_from(UUIDS), st.integers(0, 12)),
    st.sampled_from(["MIG-c0ffee00-1111", "MIG-c0ffee2", f"MIG-{UUIDS[0]}/7/0", "", " 1", "1x"]),
    st.text(max_size=4),
)
values = st.none() | st.lists(entries, max_size=5).map(",".join) | st.text()
orders = st.sampled_from([None, "PCI_BUS_ID", "FASTEST_FIRST", ""])


def gpu_at(index: int, card: Gpu) -> Gpu:
    return msgspec.structs.replace(card, index=index)


@given(values, orders, machines)
def test_whatever_stands_there_only_cards_of_the_machine_are_seen_each_once(
    value: str | None, order: str | None, gpus: tuple[Gpu, ...]
) -> None:
    meaning = visible_devices(value, order, gpus)
    known = {card.uuid for card in gpus} | {mig.uuid for card in gpus for mig in card.mig}
    seen = [device.uuid for device in meaning.devices]
    assert set(seen) <= known
    assert len(set(seen)) == len(seen)
    assert [device.ordinal for device in meaning.devices] == list(range(len(seen)))
    assert meaning.sentence
    assert meaning.certain or meaning.why
    assert visible_devices("", order, gpus).devices == ()


@given(st.lists(entries, max_size=4), entries, orders, machines, st.text())
def test_after_an_entry_that_names_nothing_the_rest_does_not_matter(
    before: list[str], invalid: str, order: str | None, gpus: tuple[Gpu, ...], after: str
) -> None:
    ended = ",".join([*before, invalid])
    meaning = visible_devices(ended, order, gpus)
    if "the list ends at" in meaning.why:
        assert visible_devices(f"{ended},{after}", order, gpus) == meaning


@given(st.permutations(range(6)), st.integers(1, 6))
def test_a_list_of_good_entries_is_seen_in_its_own_order(order: list[int], count: int) -> None:
    chosen = order[:count]
    assert indices(",".join(map(str, chosen))) == chosen
    assert indices(",".join(UUIDS[index] for index in chosen)) == chosen
    line = assignment_line([UUIDS[index] for index in chosen], ())
    assert indices(line.partition("=")[2]) == chosen
