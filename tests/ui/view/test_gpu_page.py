"""The page of a card: where its memory went, who else holds it, and every value with its unit."""

from __future__ import annotations

import functools
import re

import pytest
from msgspec.structs import replace

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.findings import conditions
from gpumon.model.makers import maker_of
from gpumon.model.processes import (
    GpuProcess,
    HolderScan,
    HoldReason,
    ProcessId,
    UnlistedHolder,
    Workload,
)
from gpumon.model.snapshot import GPU_METRICS, Gpu, GpuStatus, MigInstance, Unknown
from gpumon.recording.history import History
from gpumon.text.cells import Row, row_width
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_charts import least_height
from gpumon.ui.view.gpu_page import gpu_rows
from tests.build import GIB, NOON, gpu, process, recording_of, snapshot
from tests.ui.view.drawing import flat, history_of, lines_of, text_of

WIDTHS = (200, 140, 100, 80, 60)
CARD = gpu(
    index=5,
    memory_total=80 * GIB,
    memory_reserved=GIB // 2,
    memory_used=70 * GIB,
    memory_free=80 * GIB - 70 * GIB - GIB // 2,
    unknown={"fan_speed": Unknown.NOT_SUPPORTED, "power_draw": Unknown.NO_PERMISSION},
    power_draw=None,
    utilization_gpu=43,
    energy=7.2e6,
    persistence_mode=False,
    clock_event_reasons=0x24,
)
ORPHAN = UnlistedHolder(
    ProcessId(41251, 5),
    ("GPU-5",),
    HoldReason.ORPHAN,
    "its parent 41233 ended 22m ago",
    user="chen",
    command=("python", "train.py"),
)


def holding(pid: int, memory: int | None, user: str = "ann") -> GpuProcess:
    one = process(pid=pid, memory_used=memory, gpus=(5,), user=user)
    return replace(one, command=("python", f"job{pid}.py"))


def seen(card: Gpu, *processes: GpuProcess, holders: HolderScan | None = None) -> History:
    """A history in which the card has stood so for a minute."""
    taken = (snapshot(NOON + second, card, processes=processes) for second in range(60))
    return history_of(*(replace(now, holders=holders) for now in taken))


def drawn(card: Gpu, history: History, width: int, height: int, gone: str = "") -> list[Row]:
    about = card, history, history.latest, DEFAULT_WINDOW, recording_of()
    return gpu_rows(Memo(), *about, width, height, gone)


def rows_of(
    card: Gpu, history: History, width: int = 100, gone: str = "", height: int = 48
) -> list[Row]:
    rows = drawn(card, history, width, height, gone)
    assert {row_width(row) for row in rows} == {width}
    return rows


def page(card: Gpu, history: History, width: int = 100, gone: str = "", height: int = 48) -> str:
    rows = rows_of(card, history, width, gone, height)
    return "\n".join(text_of(row).rstrip() for row in rows)


def bar_of(card: Gpu, history: History) -> str:
    text = page(card, history)
    return text.split("Memory ─")[1].splitlines()[1].strip()


@functools.cache
def busy() -> History:
    """58 of 70 GiB have an owner; an orphan is found, three processes could not be looked into."""
    scan = HolderScan(NOON + 50, (ORPHAN,), unseen=3)
    return seen(CARD, holding(101, 40 * GIB), holding(102, 18 * GIB, "bo"), holders=scan)


@pytest.mark.parametrize("width", WIDTHS)
def test_every_row_is_whole_and_the_account_is_told_at_every_width(width: int) -> None:
    text = flat(page(CARD, busy(), width))
    for words in (
        "driver 512M",
        "ann 101 40.0 GiB",
        "bo 102 18.0 GiB",
        "unattributed 12.0G",
        "free 9.5G",
        "41251 chen python train.py",
        "its parent 41233 ended 22m ago",
        "3 processes of other users could not be inspected",
    ):
        assert words in text, words


def test_each_part_of_the_bar_is_as_long_as_it_is_large() -> None:
    bar = bar_of(CARD, busy())
    assert len(bar) == 94
    shares = {"▒": 0.5, "█": 40, "▓": 18, "▚": 12, "░": 9.5}
    for glyph, size in shares.items():
        assert abs(bar.count(glyph) - size / 80 * 94) <= 1.5, glyph
    assert list(dict.fromkeys(bar)) == ["▒", "█", "▓", "▚", "░"]


def test_memory_of_no_process_is_marked_only_beyond_what_is_normal() -> None:
    def style(history: History, card: Gpu) -> str:
        fields = [field for row in rows_of(card, history) for field in row]
        return next(style for text, style in fields if text == "▚ ")

    assert style(busy(), CARD) == "state.warning"
    calm = seen(CARD, holding(101, 70 * GIB - 2**28))
    assert style(calm, CARD) == "dim"
    assert "is normal" in page(CARD, calm)


def test_a_process_that_does_not_tell_its_memory_leaves_the_rest_unknown() -> None:
    text = page(CARD, seen(CARD, holding(101, None)))
    row = next(line for line in text.splitlines() if "█ ann" in line)
    assert "–" in row
    row = next(line for line in text.splitlines() if "▚ unattributed" in line)
    assert "unattributed –" in row
    assert " 0.0" not in row


def test_many_processes_share_a_line_after_the_largest() -> None:
    crowd = [holding(200 + number, (40 - number) * 2**28) for number in range(30)]
    text = flat(page(CARD, seen(CARD, *crowd)))
    assert "+19 more, 95.0G" in text
    assert "ann 210 7.5 GiB" in text
    assert "ann 211" not in text.split("+19 more")[0]
    _, further = text.split("Further processes on it")
    assert "ann 211" in further
    assert "ann 229" in further
    assert "ann 210" not in further, "it stands above"


def test_a_holder_says_what_it_is_and_since_when_it_is_idle() -> None:
    idle = replace(holding(101, 40 * GIB), place=Workload(slurm_job="88123"))
    busy_one = holding(102, 18 * GIB, "bo")
    busy_one = replace(busy_one, uses=(replace(busy_one.uses[0], sm=47),))
    lists = [()] * 2 + [(idle, busy_one)] * 28
    history = history_of(
        *(snapshot(NOON + 10 * at, CARD, processes=here) for at, here in enumerate(lists))
    )
    text = flat(page(CARD, history))
    assert "ann 101 40.0 GiB idle 4m slurm 88123 python job101.py" in text
    assert "bo 102 18.0 GiB SM 47 % python job102.py" in text


WORKING = replace(
    CARD,
    sm_active=8.4,
    sm_occupancy=3.1,
    tensor_active=0.0,
    dram_active=61.0,
    fp32_active=12.0,
    fp64_active=0.0,
)


@pytest.mark.parametrize("card", [CARD, WORKING], ids=["untold", "working"])
@pytest.mark.parametrize(("width", "height"), [(100, 22), (80, 22), (60, 13)])
def test_one_look_has_the_state_the_memory_and_the_charts(
    width: int, height: int, card: Gpu
) -> None:
    crowd = [holding(200 + number, (40 - number) * 2**27) for number in range(30)]
    history = seen(card, *crowd)
    rows = drawn(card, history, width, height)
    look = lines_of(rows[:height])
    found = [
        next(place for place, line in enumerate(look) if words in line)
        for words in ("GPU 5", "▲", "Memory ─", "▒█", "ann", "more,", "free 9.5G", "The last 5")
    ]
    assert found == sorted(found)
    left = height - 1 - found[-1]
    assert left >= (least_height(width - 6) if height > 15 else 3)
    for label in ("utilisation", "memory", "power", "temperature") if height > 15 else ():
        assert any(f" {label} " in line for line in look[-left:])


def test_how_much_of_a_gpu_works_is_told_with_bars_where_they_fit() -> None:
    history = seen(WORKING)
    wide, narrow, least = (
        page(WORKING, history, width).splitlines()[2].strip() for width in (140, 100, 50)
    )
    assert least == "SMs active 8 %   occupancy 3 %   tensor 0 %"
    assert narrow == f"{least}   DRAM 61 %   FP32 12 %   FP64 0 %"
    assert "SMs active 8 % ▁" in wide
    assert "DRAM 61 % ▇▇" in wide
    text = page(CARD, seen(CARD))
    assert "occupancy" not in text.splitlines()[2]
    assert "SM occupancy – not read yet" in flat(text)


def test_a_lost_gpu_says_what_it_was_and_since_when() -> None:
    history = seen(CARD)
    nothing = dict.fromkeys(("utilization_gpu", "memory_used", "temperature_gpu"))
    lost = replace(CARD, **nothing, memory_free=None, status=GpuStatus.LOST, status_since=NOON + 60)
    for second in range(60, 600, 10):
        history.add(snapshot(NOON + second, lost))
    rows = drawn(lost, history, 100, 22)
    text = [text_of(row).strip() for row in rows[:5]]
    assert text[1] == "Its last values:   43 % busy   1980 SM MHz   70.0/80.0 GiB   40 °C"
    assert "lost since" in text[2]
    assert "Its last values" not in page(CARD, history)


def test_no_other_holders_is_shown_only_if_all_processes_were_checked() -> None:
    whole = HolderScan(NOON)
    assert "No other holders (all processes checked)." in page(CARD, seen(CARD, holders=whole))
    partly = HolderScan(NOON, unseen=1)
    text = flat(page(CARD, seen(CARD, holders=partly)))
    assert "1 process of other users could not be inspected" in text
    assert "Nobody" not in text
    assert "Not searched yet" in page(CARD, seen(CARD))


def test_every_finding_is_told_with_its_evidence() -> None:
    hot = replace(CARD, temperature_gpu=95, temperature_slowdown=92)
    text = flat(page(hot, seen(hot, holding(101, 40 * GIB))))
    assert "held by no process" in text
    assert "95" in text.split("Memory ─")[0]


def test_what_the_account_says_is_said_once() -> None:
    text = flat(page(CARD, busy()))
    assert text.count("held by no process") == 1
    assert text.count("3 processes of other users") == 1
    assert text.count(ORPHAN.sentence) == 1
    assert f"{ORPHAN.id.pid} chen python train.py" in text
    calm = flat(page(CARD, seen(CARD, holding(101, 70 * GIB))))
    assert "held by no process" not in calm
    assert "all of it by processes the driver lists" not in calm, "their list says so"


def test_what_the_first_line_and_the_holders_say_is_in_no_finding() -> None:
    well = replace(CARD, clock_event_reasons=0)
    text = flat(page(well, seen(well, holding(101, 70 * GIB))))
    assert "● in use Memory ─" in text
    assert "process on it" not in text
    idle = replace(well, utilization_gpu=0)
    text = flat(page(idle, seen(idle, holding(101, 40 * GIB), holding(102, 30 * GIB))))
    assert "◐ 0 % busy at this moment" in text
    assert "holds 70.0 GiB" not in text
    assert "2 processes on it" not in text


@pytest.mark.parametrize("height", [22, 60])
def test_an_error_is_explained_once(height: int) -> None:
    lost = replace(CARD, status=GpuStatus.LOST, status_since=NOON + 20, xid=79, xid_at=NOON + 20)
    text = flat(page(lost, seen(lost), height=height))
    assert text.count("fell off the bus") == 1
    assert text.count("what to do") == 1
    assert text.count("lost since") == 1


def test_processes_that_hold_the_gpu_alike_stand_together() -> None:
    loaders = tuple(
        replace(ORPHAN, id=ProcessId(pid, 5), reason=HoldReason.CHILD) for pid in (500, 501, 502)
    )
    scan = HolderScan(NOON, loaders)
    text = flat(page(CARD, seen(CARD, holding(101, 70 * GIB), holders=scan)))
    assert "and 2 processes like it: 501, 502" in text
    assert text.count(ORPHAN.sentence) == 1


def test_every_metric_is_there_with_its_unit_or_the_reason_why_not() -> None:
    text = flat(page(CARD, busy(), 200))
    for metric in GPU_METRICS:
        shown = metric.is_for(maker_of(CARD.name))
        assert (metric.label in text) == shown, metric.label
    for words in (
        "GPU utilisation 43 %",
        "Power – no permission",
        "Fan speed – not supported",
        "Memory temperature – not read yet",
        "Energy 2.00 kWh",
        "Persistence mode disabled",
        "SM clock 1980 MHz",
        "Clock event reasons SW power cap, SW thermal",
        "Last XID none seen",
    ):
        assert words in text, words


def test_the_line_to_use_the_card_is_on_its_page() -> None:
    card = replace(CARD, uuid="GPU-1")
    assert "CUDA_VISIBLE_DEVICES=GPU-1" in page(card, seen(card), 60)


def test_the_first_line_holds_whole_values_alone() -> None:
    def values(width: int) -> list[str]:
        return re.split(r"\s{2,}", page(CARD, busy(), width).splitlines()[1].strip())

    whole = values(100)
    assert whole == [
        *("GPU 5", "H100 80GB HBM3", "43 % busy", "1980 SM MHz", "70.0/80.0 GiB", "40 °C")
    ]
    for width in range(40, 100):
        gpu, model, *shown = values(width)
        assert gpu == "GPU 5"
        assert model in {"H100 80GB HBM3", "H100"}
        assert shown == whole[2 : 2 + len(shown)]
    assert values(60)[1:3] == ["H100", "43 % busy"], "a shorter name for one more value"


def test_a_card_that_is_gone_says_so_and_shows_the_last_of_it() -> None:
    history = busy()
    text = page(CARD, history, gone="Not in the driver's list since 12:03.")
    assert "Not in the driver's list since 12:03." in text
    assert "GPU utilisation" in text


def test_instances_are_listed_and_a_card_that_tells_nothing_has_a_page() -> None:
    mig = MigInstance(
        *("MIG-1", 0, 9, 0, "1g.10gb"), memory_used=GIB, sm_active=62.4, dram_active=5.0
    )
    cut = replace(CARD, mig=(mig,), mig_mode=True)
    owner = holding(101, GIB // 2)
    owner = replace(owner, uses=(replace(owner.uses[0], instance=(9, 0)),))
    text = flat(page(cut, seen(cut, owner, holding(102, GIB, "bo"))))
    assert "MIG 5:0 1g.10gb 1.0/– GiB SM 0 % ann 101 512M" in text
    assert "bo 102 1.0 GiB" in text.split("All processes on it")[0]
    assert "MIG 5:0 1g.10gb MIG-1 GPU instance 9" in text
    assert "SMs active 62 %, DRAM 5 %" in text
    bare = Gpu(index=0, uuid="GPU-bare")
    text = page(bare, seen(bare), 80)
    assert "the used memory is unknown" in text
    assert "unattributed" not in text, "a row of unknown sizes says nothing"
    assert "0.0" not in text


def test_a_page_without_any_snapshot_is_none_the_less_one() -> None:
    rows = drawn(CARD, History(conditions()), 100, 48)
    assert {row_width(row) for row in rows} == {100}


@pytest.mark.parametrize("width", WIDTHS)
def test_reported_errors_have_their_time_their_meaning_and_what_to_do(width: int) -> None:
    reports = ((48, NOON - 3600.0), (31, NOON + 2.0), (999, NOON + 3.0))
    cards = [replace(CARD, xid=number, xid_at=at) for number, at in reports]
    history = history_of(*(snapshot(NOON + second, card) for second, card in enumerate(cards)))
    text = flat(page(cards[-1], history, width)).split("Reported errors ")[1]
    places = [text.index(f"XID {number} ") for number in (999, 31, 48)]
    assert places == sorted(places), "the newest first"
    for words in (
        "12:00 look it up in NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors)",
        "12:00 a program touched memory that it does not own what to do: look for",
        "11:00 memory error that could not be corrected critical · before gpumon was started",
        "what to do: move jobs away and reset the GPU",
    ):
        assert words in text
    assert "Reported errors" not in page(CARD, seen(CARD), width)
