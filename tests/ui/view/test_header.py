"""The header: what it says of the GPUs and the host, and what a narrow one drops."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.model.snapshot import Gpu, GpuStatus, Host, MigInstance, OwnCost, Snapshot, Unknown
from gpumon.ui.view.dashboard_view import View
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.ui.view.drawing import VIEW, Live, picture, text_of

HOST = Host(
    "ada-07",
    driver_version="570.124.06",
    cuda_version="12.8",
    cpu_percent=37.0,
    memory_total=1000 * GIB,
    memory_used=212 * GIB,
    load=(40.15, 1.0, 1.0),
)

pytestmark = pytest.mark.usefixtures("utc")


def header(now: Snapshot, width: int = 200, height: int = 30, view: View = VIEW) -> str:
    """The header of the dashboard."""
    return picture(replace(now, host=HOST), width, height, view).splitlines()[0]


def lost(index: int) -> Gpu:
    return gpu(index=index, status=GpuStatus.LOST, power_draw=None)


def test_it_says_how_many_gpus_are_free_and_need_attention_and_their_power() -> None:
    now = snapshot(
        NOON,
        gpu(power_draw=71.0),
        gpu(index=1, power_draw=340.0, power_limit=1400.0),
        lost(2),
        processes=(process(gpus=(1,)),),
    )
    assert "  1 of 3 free · 1 needs attention · ≥ 0.4 kW  host cpu  37%" in header(now)


def test_the_power_of_a_gpu_that_does_not_answer_is_too_old_to_count() -> None:
    silent = gpu(index=1, power_draw=340.0, status=GpuStatus.NO_ANSWER)
    assert "· ≥ 71 W   " in header(snapshot(NOON, gpu(power_draw=71.0), silent))


def test_several_gpus_need_attention() -> None:
    assert "0 of 2 free · 2 need attention" in header(snapshot(NOON, lost(0), lost(1)))


def test_a_single_gpu_has_its_state_below() -> None:
    shown = header(snapshot(NOON, gpu()))
    assert "free" not in shown
    assert " W " not in shown
    assert shown.startswith(" gpumon  ada-07  host cpu")


def test_a_mig_device_counts_in_place_of_its_gpu() -> None:
    devices = tuple(
        MigInstance(f"MIG-{index}", index, index, 0, "1g.10gb", memory_used=0, memory_total=GIB)
        for index in range(2)
    )
    now = snapshot(NOON, gpu(mig=devices, mig_mode=True, utilization_gpu=None), gpu(index=1))
    assert "3 of 3 free" in header(now)


def test_what_is_unknown_is_not_counted_as_none() -> None:
    known, unread = gpu(), gpu(index=1, memory_used=None)
    assert "≥ 1 of 2 free" in header(snapshot(NOON, known, unread))
    recorded = {"processes": Unknown.NOT_RECORDED}
    without_lists = snapshot(
        NOON, gpu(unknown=recorded), gpu(index=1, unknown=recorded), processes_at=None
    )
    assert "free" not in header(without_lists)


@pytest.mark.parametrize(
    ("limit", "draw", "text"),
    [
        (60.0, 9.0, "18 W "),
        (60.0, 55.0, "110 W"),
        (700.0, 400.0, "800 W "),
        (1400.0, 400.0, "0.8 kW"),
        (8000.0, 400.0, "0.8 kW "),
    ],
)
def test_the_unit_and_width_of_the_power_do_not_change_with_the_draw(
    limit: float, draw: float, text: str
) -> None:
    gpus = [gpu(index=index, power_draw=draw, power_limit=limit) for index in range(2)]
    assert f" free · {text}  host" in header(snapshot(NOON, *gpus))


def test_a_narrow_header_drops_its_values_in_a_fixed_order() -> None:
    now = snapshot(NOON, gpu(), lost(1))
    shown = {width: header(now, width) for width in range(200, 20, -1)}
    assert "ram  212/1000G  load 40.15  driver 570.124.06  CUDA 12.8" in shown[200]
    named = ("CUDA", "load", "ram", "host", "cpu", " W", "attention", "free")
    gone = [max(width for width, line in shown.items() if name not in line) for name in named]
    assert gone == sorted(gone, reverse=True)
    assert len(set(gone)) == len(gone)


@pytest.mark.parametrize("width", [70, 100, 200])
def test_the_own_cost_is_shown_where_it_was_asked_for(width: int) -> None:
    cost = OwnCost(cpu_percent=1.6, driver_share=0.001)
    now = replace(snapshot(NOON, gpu(), lost(1)), cost=cost)
    assert "self 1.6% cpu" in header(now, width, view=View(interval=0.5, show_cost=True))
    assert "self" not in header(now, width)


def test_a_state_that_changes_is_counted_at_once() -> None:
    screen, heads = Live(View(interval=0.1), 120, 30), []
    for at, used in ((NOON, 0), (NOON + 0.1, 40 * GIB)):
        screen.see(snapshot(at, gpu(), gpu(index=1, memory_used=used)))
        heads.append(text_of(screen.draw().header[0]))
    assert "2 of 2 free" in heads[0]
    assert "1 of 2 free" in heads[1]


def test_a_terminal_too_small_for_the_dashboard_still_says_what_is_free() -> None:
    assert "1 of 2 free" in header(snapshot(NOON, gpu(), lost(1)), 50, 8)


def test_a_low_terminal_shows_first_what_is_wrong_and_then_what_is_free() -> None:
    busy = [gpu(index=index, utilization_gpu=90, memory_used=40 * GIB) for index in range(6)]
    users = tuple(process(100 + index, gpus=(index,), memory_used=39 * GIB) for index in range(6))
    now = snapshot(NOON, *busy, gpu(index=6), lost(7), processes=users)
    shown = [line.split()[:3] for line in picture(now, 60, 6).splitlines()]
    assert shown[1][::2] == ["7", "LOST"]
    assert shown[2][::2] == ["6", "free"]
