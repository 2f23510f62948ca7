"""Logs that nvidia-smi, scripts and other programs wrote: a report and a replay see the same.

The words of a lost GPU follow public reports of nvidia-smi's output; the formats of time are those
of nvidia-smi, ``date``, Python and spreadsheets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from gpumon.model.snapshot import Gpu, Snapshot, Unknown
from gpumon.recording.csv import file_lines, index
from gpumon.recording.csv.recording import open_log
from gpumon.recording.csv.time_formats import time_format
from gpumon.recording.memory.event_finder import EventFinder
from gpumon.recording.recording import RecordingError
from tests.known import known
from tests.log_headers import PROCESS_HEADER
from tests.recording.csv.reading import opened, times_of
from tests.report.logs import printed, refused, report

pytestmark = pytest.mark.usefixtures("utc")

SLOW = pytest.mark.slow
Form: TypeAlias = "Callable[[datetime], str]"
"""Writes a time."""

BEGIN = datetime(2026, 5, 21, 10, tzinfo=timezone.utc)
HEADINGS = (
    "timestamp, index, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB],"
    " power.draw [W], temperature.gpu"
)
VALUES = "NVIDIA RTX A6000, 50 %, 20000 MiB, 49140 MiB, 300.00 W, 60"
UNKEYED = (
    "timestamp, name, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]"
)
UNKNOWN_ROW = ", ".join(["[Unknown Error]"] * 8)
NO_HANDLE = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error"


@pytest.fixture(params=[2**16, 1500], ids=["one chunk", "chunks"])
def _chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short log lies in one chunk or in many."""
    monkeypatch.setattr(index, "CHUNK", request.param)
    monkeypatch.setattr(file_lines, "PROBE", 500)


def stamp(seconds: float) -> str:
    return f"{BEGIN + timedelta(seconds=seconds):%Y/%m/%d %H:%M:%S.%f}"[:-3]


def row(seconds: float, gpu: int, values: str = VALUES) -> str:
    return f"{stamp(seconds)}, {gpu}, {values}"


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def log_of(tmp_path: Path, lines: Iterable[str], headings: str = HEADINGS) -> Path:
    return write(tmp_path / "gpu.csv", [headings, *lines])


def gpus_of(path: Path) -> dict[int | None, dict[str, Any]]:
    """The lines of the report by the index of the GPU."""
    return {line["index"]: line for line in report(path)["lines"]}


def replayed(path: Path) -> list[Snapshot]:
    """All samples of a log, as a replay shows them."""
    with opened(path) as log:
        return [known(log.at(time)) for time in times_of(log)]


def events_of(samples: Iterable[Snapshot]) -> list[tuple[float, str]]:
    finder = EventFinder(0.02)
    began = BEGIN.timestamp()
    return [
        (round(event.time - began), event.sentence)
        for sample in samples
        for event in finder.see(sample)
    ]


def seconds(hours: float | None) -> float:
    return known(hours) * 3600


def refusal(path: Path) -> str:
    """Why a file is refused, which a report and a replay say alike."""
    said = refused(path).removeprefix("gpumon: ").strip()
    with pytest.raises(RecordingError) as caught:
        open_log(path)
    assert said == caught.value.sentence
    return said


# Lost GPUs


WORD = "{{stamp}}, {{gpu}}, NVIDIA RTX A6000, {0}, 0 MiB, 49140 MiB, {0}, {0}"
"""A row of a GPU of which nvidia-smi still knows name and memory."""
LEFT = {
    **{
        word: (WORD.format(word), "is lost", [1])
        for word in (
            "[GPU is lost]",
            "[GPU is lost. Reboot the system to recover this GPU]",
            "[Unknown Error]",
            "[Unable to communicate with GPU]",
            "[GPU access blocked]",
        )
    },
    **{
        word: (WORD.format(word), "requires reset", [1])
        for word in ("[GPU requires reset]", "[Reset Required]", "[Needs a reset]")
    },
    "a message and a row": (f"{NO_HANDLE}\n{UNKNOWN_ROW}", "is lost", [0, 1, 2]),
    "a message": (NO_HANDLE, "is lost", [0, 1, 2]),
    "a row": (UNKNOWN_ROW, "is lost", [0, 1, 2]),
    "another message": (
        "Unable to determine the device handle for gpu 0000:02:00.0: GPU is lost.",
        "is lost",
        [0, 1, 2],
    ),
    "a row without an index": ("{stamp}" + 7 * ", [GPU is lost]", "is lost", [0, 1, 2]),
    "a short row": ("{stamp}, {gpu}, [GPU is lost]", "is lost", [0, 1, 2]),
    "a message with the index": ("GPU {gpu} is lost", "is lost", [0, 1, 2]),
    "a message of a reset": ("GPU {gpu} requires reset", "requires reset", [0, 1, 2]),
}
STATUSES = {"is lost": "lost", "requires reset": "reset required"}


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(
    ("left", "event", "lost"),
    [
        pytest.param(left, event, lost, id=f"{name}, GPU {lost}")
        for name, (left, event, gpus) in LEFT.items()
        for lost in gpus
    ],
)
def test_what_stands_in_place_of_a_row_is_a_lost_gpu(
    tmp_path: Path, left: str, event: str, lost: int
) -> None:
    lines = [
        left.format(stamp=stamp(at + number / 1000), gpu=number)
        if number == lost and at >= 30
        else row(at + number / 1000, number)
        for at in range(0, 60, 5)
        for number in range(3)
    ]
    path = log_of(tmp_path, lines)
    found = report(path)
    hours = {line["index"]: round(seconds(line["lost_hours"])) for line in found["lines"]}
    assert hours == {number: 25 if number == lost else 0 for number in range(3)}
    assert {line["xids"] is None for line in found["lines"]} == {True}
    assert "The log has no XIDs." in found["notes"]
    assert not any("damaged" in note for note in found["notes"])
    said = [note for note in found["notes"] if "of nvidia-smi among its rows" in note]
    assert bool(said) == left.startswith(("Unable", "GPU"))
    samples = replayed(path)
    gpus = [(gpu.index, gpu.status.value) for gpu in samples[-1].gpus]
    assert gpus == [(at, STATUSES[event] if at == lost else "ok") for at in range(3)]
    assert samples[-1].gpus[lost].name == "NVIDIA RTX A6000"
    # In a whole row these are also the words of a single sensor that fails.
    is_of_sensor = left == WORD.format("[Unknown Error]")
    reason = Unknown.NO_ANSWER if is_of_sensor else Unknown.GPU_LOST
    assert samples[-1].gpus[lost].unknown["utilization_gpu"] is reason
    assert events_of(samples) == [(30, f"GPU {lost} {event}")]


@pytest.mark.parametrize("headings", ["date,time,index", "Time,Date,GPU"])
def test_date_and_time_in_two_columns_are_joined(tmp_path: Path, headings: str) -> None:
    days = [stamp(at).split(" ") for at in range(60)]
    swap = -1 if headings.startswith("Time") else 1
    lines = [f"{','.join(day[::swap])},{gpu},97" for day in days for gpu in range(2)]
    path = log_of(tmp_path, lines, f"{headings},utilization.gpu [%]")
    covered = [seconds(line["covered_hours"]) for line in gpus_of(path).values()]
    assert covered == pytest.approx([59, 59], abs=0.01)
    assert len(replayed(path)) == 60


def test_a_message_with_an_index_before_the_bus_id_names_that_gpu(tmp_path: Path) -> None:
    lost = "Unable to determine the device handle for GPU2: 0000:03:00.0: Unknown Error"
    lines = [row(at, gpu) for at in range(5) for gpu in range(4)]
    lines += [line for at in range(5, 10) for line in (row(at, 0), lost, row(at, 3))]
    gpus = gpus_of(log_of(tmp_path, lines))
    assert seconds(gpus[2]["lost_hours"]) == pytest.approx(4, abs=0.01)
    assert not gpus[1]["lost_hours"]


def test_the_memory_of_a_lost_gpu_is_not_0(tmp_path: Path) -> None:
    lost = "NVIDIA H100, [GPU requires reset], 0 MiB, 81559 MiB" + 2 * ", [GPU requires reset]"
    lines = [row(at, 0, VALUES if at < 5 else lost) for at in range(11)]
    path = log_of(tmp_path, lines)
    line = gpus_of(path)[0]
    assert line["memory_mean_bytes"] == 20000 * 2**20
    assert line["memory_known"] == pytest.approx(0.5)
    assert replayed(path)[-1].gpus[0].memory_used is None


@pytest.mark.parametrize("said", [[NO_HANDLE], [NO_HANDLE] * 2])
def test_a_gpu_that_is_lost_at_its_last_sample_is_named(tmp_path: Path, said: list[str]) -> None:
    lines = [row(at, gpu) for at in range(5) for gpu in range(2)]
    notes = report(log_of(tmp_path, [*lines, row(5, 0), *said, row(6, 0)]))["notes"]
    assert "Lost, or reset required, at the last sample: GPU 1." in notes
    assert "The log has no XIDs." in notes


def test_a_message_with_a_bus_id_names_its_gpu(tmp_path: Path) -> None:
    headings = "timestamp, index, pci.bus_id, utilization.gpu [%]"
    lines = [
        f"{stamp(at)}, {number}, 00000000:0{number + 1}:00.0, 5 %"
        for at in range(9)
        for number in range(3)
        if at < 5 or number == 0
    ]
    # nvidia-smi says nothing of the GPU 1, which is not listed any more.
    lines[16:] = [line for each in lines[16:] for line in (each, NO_HANDLE.replace("02", "03"))]
    samples = replayed(log_of(tmp_path, lines, headings))
    assert [(gpu.index, gpu.status.value) for gpu in samples[-1].gpus] == [(0, "ok"), (2, "lost")]


def test_a_gpu_that_has_no_rows_any_more_is_an_event(tmp_path: Path) -> None:
    indices = {at: (0, 1, 2) if at < 30 else (0, 2) for at in range(0, 60, 5)}
    lines = [row(at + gpu / 1000, gpu) for at, gpus in indices.items() for gpu in gpus]
    path = log_of(tmp_path, lines)
    # The newest sample of a log that is still being written may be incomplete.
    assert events_of(replayed(path)) == [(35, "GPU 1 is no longer listed")]
    assert gpus_of(path)[1]["last"].startswith("2026-05-21T10:00:25")


def test_one_sensor_that_fails_is_no_lost_gpu(tmp_path: Path) -> None:
    lines = [row(at, 0, VALUES.replace("300.00 W", "[Unknown Error]")) for at in range(60)]
    path = log_of(tmp_path, lines)
    assert gpus_of(path)[0]["lost_hours"] == 0
    last = replayed(path)[-1].gpus[0]
    assert last.status.value == "ok"
    assert last.unknown["power_draw"] is Unknown.NO_ANSWER


# Times that are the same, and rows in bursts


def whole_seconds(lines: Iterable[str]) -> list[str]:
    return [f"{line[:19]}{line[23:]}" for line in lines]


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("gpus", [1, 4])
@pytest.mark.parametrize("interval", [0.1, 0.4, 0.5])
def test_stamps_of_whole_seconds_are_a_rate_above_one_a_second(
    tmp_path: Path, interval: float, gpus: int
) -> None:
    count = round(60 / interval)
    times = [number * interval + 1e-6 for number in range(count)]
    lines = whole_seconds(row(at, number) for at in times for number in range(gpus))
    path = log_of(tmp_path, lines)
    found = report(path)
    assert len(found["lines"]) == gpus
    for line in found["lines"]:
        assert seconds(line["covered_hours"]) == pytest.approx(59, abs=0.1)
        assert line["energy_kwh"] == pytest.approx(300 * 59 / 3.6e6, rel=0.01)
        assert line["gaps"] == 0
        assert line["first"].startswith("2026-05-21T10:00:00")
    samples = replayed(path)
    assert len(samples) == count
    assert samples[0].time == BEGIN.timestamp()
    assert {len(sample.gpus) for sample in samples} == {gpus}


def test_a_pause_is_a_gap_in_whole_seconds_too(tmp_path: Path) -> None:
    times = [begin + number / 2 for begin in (0, 3600) for number in range(60)]
    path = log_of(tmp_path, whole_seconds(row(at, 0) for at in times))
    line = gpus_of(path)[0]
    assert seconds(line["covered_hours"]) == pytest.approx(60, abs=2)
    assert line["gaps"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("gpus", [1, 3])
@pytest.mark.parametrize("apart", [0.0005, 0.003, 0.1, 0.25, 0.28, 0.3, 0.45, 0.5])
def test_two_programs_that_write_a_log_count_once(tmp_path: Path, apart: float, gpus: int) -> None:
    taken = sorted(
        (at + late + number / 1000, number)
        for at in range(60)
        for late in (0.0, apart)
        for number in range(gpus)
    )
    path = log_of(tmp_path, [row(at, number) for at, number in taken])
    for line in report(path)["lines"]:
        assert seconds(line["covered_hours"]) == pytest.approx(59.2, abs=0.4)
        assert line["gaps"] == 0
    assert {tuple(gpu.index for gpu in sample.gpus) for sample in replayed(path)} == {
        tuple(range(gpus))
    }


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("key", ["index", "pci.bus_id", "uuid"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_sample_begins_with_the_gpu_that_the_log_has_first(
    tmp_path: Path, order: tuple[int, ...], key: str
) -> None:
    names = {"index": "{}", "pci.bus_id": "00000000:{}1:00.0", "uuid": "GPU-{}"}
    lines = [
        f"{stamp(at + number / 100)}, {names[key].format(gpu)}, {10 * gpu + at % 10} %"
        for at in range(60)
        for number, gpu in enumerate(order)
    ]
    samples = replayed(log_of(tmp_path, lines, f"timestamp, {key}, utilization.gpu [%]"))
    loads = [[gpu.utilization_gpu for gpu in shown.gpus] for shown in samples]
    assert loads == [[10 * gpu + at % 10 for gpu in order] for at in range(60)]
    assert {len({(gpu.index, gpu.uuid) for gpu in shown.gpus}) for shown in samples} == {3}


@pytest.mark.usefixtures("_chunks")
def test_a_log_that_begins_within_a_sample_goes_on_with_whole_ones(tmp_path: Path) -> None:
    lines = [row(at + number / 100, number) for at in range(60) for number in range(3)][2:]
    samples = replayed(log_of(tmp_path, lines))
    assert [len(shown.gpus) for shown in samples] == [1, *[3] * 59]


# GPUs without an index


def unkeyed(at: float, utilization: int = 50, name: str = "NVIDIA A100") -> str:
    return f"{stamp(at)}, {name}, {utilization} %, 20000 MiB, 81920 MiB, 300.00 W"


def bursts(
    gpus: int, samples: int = 60, *, step: float = 0.001, interval: float = 1.0
) -> list[str]:
    """Rows of GPUs of which each has its own utilisation."""
    return [
        unkeyed(at * interval + number * step, 10 * number)
        for at in range(samples)
        for number in range(gpus)
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(
    ("gpus", "step", "interval"),
    [(1, 0, 1), (2, 0, 1), (4, 0.001, 1), (8, 0.01, 0.1), (8, 0.05, 1), (3, 0.2, 5)],
)
def test_gpus_without_an_index_are_told_apart_by_their_order(
    tmp_path: Path, gpus: int, step: float, interval: float
) -> None:
    path = log_of(tmp_path, bursts(gpus, step=step, interval=interval), UNKEYED)
    found = gpus_of(path)
    assert list(found) == list(range(gpus))
    for number, line in found.items():
        assert line["utilization_mean_percent"] == 10 * (number or 0)
        assert seconds(line["covered_hours"]) == pytest.approx(59 * interval, rel=0.01)
    for sample in replayed(path):
        assert [gpu.index for gpu in sample.gpus] == list(range(gpus))
        assert [gpu.utilization_gpu for gpu in sample.gpus] == [10 * at for at in range(gpus)]


def test_gpus_with_names_of_their_own_need_no_index(tmp_path: Path) -> None:
    lines = [unkeyed(at, name=name) for at in range(60) for name in ("A100", "T4")]
    path = log_of(tmp_path, whole_seconds(lines), UNKEYED)
    found = {line["name"]: seconds(line["covered_hours"]) for line in report(path)["lines"]}
    assert found == pytest.approx({"A100": 59, "T4": 59}, abs=0.01)
    assert [gpu.name for gpu in replayed(path)[-1].gpus] == ["A100", "T4"]


@pytest.mark.slow
def test_rows_of_a_sample_that_lacks_a_gpu_are_of_nobody(tmp_path: Path) -> None:
    lines = bursts(4, 700)
    lines += [unkeyed(700 + at + number / 1000, 90) for at in range(10) for number in range(3)]
    path = log_of(tmp_path, lines, UNKEYED)
    found = report(path)
    assert [line["utilization_mean_percent"] for line in found["lines"]] == [0, 10, 20, 30]
    assert any(
        "30 rows that may be of any GPU, the first is line 2802" in note for note in found["notes"]
    )
    assert replayed(path)[-1].gpus == ()


def test_a_log_without_index_that_has_only_begun_grows(tmp_path: Path) -> None:
    path = log_of(tmp_path, [], UNKEYED)
    with opened(path) as log:
        assert log.first is None
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in bursts(3, 5)))
        shown = known(log.at(BEGIN.timestamp()))
        assert [gpu.index for gpu in shown.gpus] == [0, 1, 2]


# Several columns for one value


@pytest.mark.parametrize("prefix", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_columns_of_single_clock_event_reasons_are_read(tmp_path: Path, prefix: str) -> None:
    reasons = ("hw_slowdown", "hw_thermal_slowdown", "sw_power_cap")
    names = ", ".join(f"{prefix}.{reason}" for reason in reasons)
    heat, cap = "Active, Active, Not Active", "Not Active, Not Active, Active"
    lines = [f"{stamp(at)}, 0, 97 %, {heat if at >= 30 else cap}" for at in range(60)]
    path = log_of(tmp_path, lines, f"timestamp, index, utilization.gpu [%], {names}")
    line = gpus_of(path)[0]
    assert seconds(line["heat_hours"]) == pytest.approx(29, abs=0.01)
    assert seconds(line["power_cap_hours"]) == pytest.approx(30, abs=0.01)
    assert (line["hw_slowdown_hours"], line["power_brake_hours"]) == (0, None)
    samples = replayed(path)
    assert [samples[at].gpus[0].clock_event_reasons for at in (0, 59)] == [0x04, 0x48]
    assert events_of(samples) == [(30, "GPU 0 throttled: HW slowdown and HW thermal")]


def test_a_reason_that_is_not_logged_is_unknown(tmp_path: Path) -> None:
    headings = "timestamp, index, utilization.gpu [%], clocks_event_reasons.sw_power_cap"
    words = ("Active", "Not Active", "[N/A]")
    lines = [f"{stamp(at)}, 0, 97 %, {words[at // 20]}" for at in range(60)]
    path = log_of(tmp_path, lines, headings)
    found = report(path)
    line = found["lines"][0]
    assert line["heat_hours"] is line["power_brake_hours"] is line["slowed_kwh"] is None
    assert seconds(line["power_cap_hours"]) == pytest.approx(20, abs=0.01)
    assert line["slowdown_known"] == pytest.approx(40 / 59, abs=0.01)
    assert (
        "The log does not say whether GPUs were slowed down by heat, power brake or the hardware."
        in found["notes"]
    )
    shown = [sample.gpus[0].clock_event_reasons for sample in replayed(path)]
    assert shown == [4] * 20 + [None] * 40


def test_the_mask_counts_beside_single_reasons(tmp_path: Path) -> None:
    names = ("active", "hw_slowdown")
    headings = ", ".join(f"clocks_throttle_reasons.{name}" for name in names)
    masks = ["0x0000000000000044"] * 30 + ["[N/A]"] * 30
    lines = [f"{stamp(at)}, 0, {mask}, Not Active, 5 %" for at, mask in enumerate(masks)]
    path = log_of(tmp_path, lines, f"timestamp, index, {headings}, utilization.gpu [%]")
    assert seconds(gpus_of(path)[0]["heat_hours"]) == pytest.approx(30, abs=0.01)
    shown = [sample.gpus[0].clock_event_reasons for sample in replayed(path)]
    assert shown == [0x44] * 30 + [0] * 30


@pytest.mark.parametrize(
    ("columns", "cells", "watts"),
    [
        ("power.draw.instant [W], power.draw.average [W]", "700.00 W, 650.00 W", 650),
        ("power.draw.average [W], power.draw.instant [W]", "[N/A], 700.00 W", 700),
        ("power.draw.instant [W]", "700.00 W", 700),
        ("power.draw.instant [W], power.draw [W]", "700.00 W, 640.00 W", 640),
        ("power.draw.instant [W], power.draw [W]", "700.00 W, [Not Supported]", 700),
        ("module.power.draw.average [W]", "900.00 W", None),
    ],
)
def test_the_power_is_the_mean_if_there_is_one(
    tmp_path: Path, columns: str, cells: str, watts: float | None
) -> None:
    lines = [f"{stamp(at)}, 0, 5 %, {cells}" for at in range(60)]
    path = log_of(tmp_path, lines, f"timestamp, index, utilization.gpu [%], {columns}")
    energy = gpus_of(path)[0]["energy_kwh"]
    assert energy == (None if watts is None else pytest.approx(watts * 59 / 3.6e6, rel=0.001))
    assert {sample.gpus[0].power_draw for sample in replayed(path)} == {watts}


def test_more_memory_in_use_than_there_is_is_unknown_and_no_damage(tmp_path: Path) -> None:
    impossible = VALUES.replace("20000 MiB", "17592186044415 MiB")
    path = log_of(tmp_path, [row(at, 0, impossible if at % 2 else VALUES) for at in range(60)])
    found = report(path)
    assert found["lines"][0]["memory_peak_bytes"] == 20000 * 2**20
    assert found["lines"][0]["memory_known"] == pytest.approx(0.5, abs=0.02)
    assert found["notes"][0] == (
        f"{path} has 30 lines with values that no GPU can have, the first is line 3; these values"
        " count as unknown."
    )
    assert [sample.gpus[0].memory_used for sample in replayed(path)[:2]] == [20000 * 2**20, None]


# Times

SIMPLE = "timestamp,index,utilization.gpu [%],memory.used [MiB],memory.total [MiB],power.draw [W]"
TIMES: dict[str, Form] = {
    "seconds": lambda at: f"{at.timestamp():.0f}",
    "fractions": lambda at: f"{at.timestamp():.3f}",
    "milliseconds": lambda at: f"{1e3 * at.timestamp():.0f}",
    "microseconds": lambda at: f"{1e6 * at.timestamp():.0f}",
    "nanoseconds": lambda at: f"{1e9 * at.timestamp():.0f}",
    "ISO": lambda at: at.isoformat(),
    "ISO with nanoseconds": lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.000000001+00:00",
    "date -Ins": lambda at: f"{at:%Y-%m-%dT%H:%M:%S},000000001+00:00",
    "UTC": lambda at: f"{at:%Y-%m-%d %H:%M:%S} UTC",
    "date": lambda at: f"{at:%a %b %e %H:%M:%S} UTC {at:%Y}",
    "date of Debian 12": lambda at: f"{at:%a %b %d %I:%M:%S %p} UTC {at:%Y}",
    "date -R": lambda at: f'"{at:%a, %d %b %Y %H:%M:%S} +0000"',
    "all digits and an exponent": lambda at: f"{at.timestamp():.9e}",
    "compact": lambda at: f"{at:%Y%m%d_%H%M%S}",
    "underscore": lambda at: f"{at:%Y-%m-%d_%H:%M:%S}",
    "German": lambda at: f"{at:%d.%m.%Y %H:%M:%S}",
    "American": lambda at: f"{at.month}/{at.day}/{at.year} {at:%I:%M:%S %p}",
    "British": lambda at: f"{at:%d/%m/%Y %H:%M:%S}",
}


def simple(form: Form) -> list[str]:
    return [f"{form(BEGIN + timedelta(seconds=at))},0,97,20480,49140,300.12" for at in range(60)]


@pytest.mark.slow
@pytest.mark.parametrize("form", TIMES.values(), ids=TIMES)
def test_times_are_read_where_their_meaning_is_certain(tmp_path: Path, form: Form) -> None:
    path = log_of(tmp_path, simple(form), SIMPLE)
    line = gpus_of(path)[0]
    assert seconds(line["covered_hours"]) == pytest.approx(59, abs=0.01)
    assert line["first"].startswith("2026-05-21T10:00:00")
    assert line["utilization_mean_percent"] == 97
    samples = replayed(path)
    assert len(samples) == 60
    assert samples[0].time == pytest.approx(BEGIN.timestamp(), abs=0.001)


REFUSED: dict[str, tuple[Form, str]] = {
    "either day or month": (lambda at: f"5/1/2026 {at:%I:%M:%S %p}", "day and month"),
    "no date": (lambda at: f"{at:%H:%M:%S}", "times of day without a date, such as '10:00:00'"),
    "since the start": (lambda at: f"{at.second:.1f}", "perhaps seconds since its start"),
    "a spreadsheet's number": (
        lambda at: f"{46163 + (at.hour * 3600 + at.minute * 60 + at.second) / 86400}",
        "a spreadsheet's numbers",
    ),
    "a spreadsheet's minutes": (
        lambda at: f"{at:%M:%S}.0",
        "times without date and hour, such as '00:00.0', as a spreadsheet saves them",
    ),
    "only a date": (lambda at: f"{at:%Y-%m-%d}", "dates without a time of day"),
    "rounded seconds": (lambda at: f"{at.timestamp():e}", "rounded to 1000"),
    "rounded milliseconds": (lambda at: f"{1e3 * at.timestamp():.6e}", "rounded to 1e+06"),
    "a zone that nobody knows": (
        lambda at: f"{at:%a %b %e %H:%M:%S} XXT {at:%Y}",
        "no time that can be read",
    ),
}


@pytest.mark.parametrize(("form", "says"), REFUSED.values(), ids=REFUSED)
def test_times_with_no_certain_meaning_are_refused(tmp_path: Path, form: Form, says: str) -> None:
    said = refusal(log_of(tmp_path, simple(form), SIMPLE))
    assert says in said
    assert "2026-05-31 10:00:00" in said or "yyyy-mm-dd" in said


@pytest.mark.slow
@pytest.mark.parametrize("count", [60, 3000])
def test_times_of_several_forms_in_one_file_are_read(tmp_path: Path, count: int) -> None:
    def form(at: datetime) -> str:
        late = at >= BEGIN + timedelta(seconds=30)
        return f"{at.timestamp():.0f}" if late else at.isoformat()

    at = (BEGIN + timedelta(seconds=second) for second in range(count))
    path = log_of(tmp_path, [f"{form(one)},0,97,20480,49140,300.12" for one in at], SIMPLE)
    assert seconds(gpus_of(path)[0]["covered_hours"]) == pytest.approx(count - 1, abs=0.01)
    assert len(replayed(path)) == count


def local_row(at: float, form: str = "%Y/%m/%d %H:%M:%S.000") -> str:
    """A row with the local time."""
    return f"{time.strftime(form, time.localtime(at))},0,97,20480,49140,300.12"


def times_in_replay(path: Path) -> list[float]:
    return [sample.time for sample in replayed(path)]


@pytest.fixture
def _berlin(monkeypatch: pytest.MonkeyPatch) -> None:
    # A rule in place of a name needs no files of time zones.
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()


LOCAL_TIMES: dict[str, str] = {
    "nvidia-smi": "%Y/%m/%d %H:%M:%S.000",
    "whole seconds": "%Y-%m-%d %H:%M:%S",
    "date": "%a %b %e %H:%M:%S %Z %Y",
    "German": "%d.%m.%Y %H:%M:%S",
}
SUMMER_BEGINS, SUMMER_ENDS = 1_774_746_000, 1_792_890_000


@pytest.mark.slow
@pytest.mark.parametrize("form", LOCAL_TIMES.values(), ids=LOCAL_TIMES)
@pytest.mark.parametrize("change", [SUMMER_BEGINS, SUMMER_ENDS])
@pytest.mark.usefixtures("utc", "_berlin", "_chunks")
def test_an_hour_that_comes_twice_or_never_is_neither_lost_nor_a_gap(
    tmp_path: Path, form: str, change: int
) -> None:
    times = range(change - 5400, change + 5401, 60)
    path = log_of(tmp_path, [local_row(at, form) for at in times], SIMPLE)
    line = gpus_of(path)[0]
    assert line["covered_hours"] == pytest.approx(3, abs=1e-4)
    assert not line["gaps"]
    ends = [datetime.fromisoformat(line[key]).timestamp() for key in ("first", "last")]
    assert ends == [times[0], times[-1]]
    assert times_in_replay(path) == pytest.approx(list(times), rel=0, abs=0.01)


@pytest.mark.parametrize(
    ("text", "are_local"),
    [
        ("Sun May 31 12:00:00 2026", True),
        ("Sun May 31 12:00:00 PM 2026", True),
        ("Sun May 31 12:00:00 +0200 2026", False),
        ("Sun May 31 12:00:00 PM UTC 2026", False),
        ("31-05-2026 12:00:00", True),
        ("20260531_120000", True),
        ("20260531_120000+0200", False),
        ("2026-05-31T12:00:00,5-02:00", False),
    ],
)
def test_a_zone_is_what_follows_the_time_of_day(text: str, *, are_local: bool) -> None:
    assert time_format([text]).are_local is are_local


@pytest.mark.slow
@pytest.mark.parametrize("step", [1500, 1800, 2400, 3600, 5400])
@pytest.mark.parametrize("shift", [0, 600, 1200])
@pytest.mark.usefixtures("utc", "_berlin", "_chunks")
def test_samples_far_apart_show_which_hour_it_is(tmp_path: Path, step: int, shift: int) -> None:
    times = [SUMMER_ENDS + shift + step * number for number in range(-25, 25)]
    path = log_of(tmp_path, map(local_row, times), SIMPLE)
    assert times_in_replay(path) == pytest.approx(times, rel=0, abs=0.01)


@pytest.mark.usefixtures("utc", "_berlin")
def test_local_times_of_two_forms_have_that_hour_twice(tmp_path: Path) -> None:
    times = range(SUMMER_ENDS - 5400, SUMMER_ENDS + 5401, 60)
    forms = ["%d.%m.%Y %H:%M:%S", "%Y-%m-%d %H:%M:%S"]
    lines = [local_row(at, forms[number > 10]) for number, at in enumerate(times)]
    path = log_of(tmp_path, lines, SIMPLE)
    assert times_in_replay(path) == pytest.approx(list(times), rel=0, abs=0.01)


@pytest.mark.usefixtures("utc", "_berlin")
def test_a_clock_that_is_set_back_in_that_hour_is_no_change_of_the_hour(tmp_path: Path) -> None:
    begin = SUMMER_ENDS - 1800
    times = [*range(begin, begin + 600, 10), *range(begin + 300, begin + 900, 10)]
    line = gpus_of(log_of(tmp_path, map(local_row, times), SIMPLE))[0]
    assert seconds(line["covered_hours"]) == pytest.approx(590 + 590, abs=1)
    assert not line["gaps"]


WRONG: dict[str, Callable[[int, int], float]] = {
    "a row 8 h late": lambda at, _: 8 * 3600 if at == 30 else 0,
    "a row 8 h early": lambda at, _: -8 * 3600 if at == 30 else 0,
    "a row 80 years late": lambda at, _: 80 * 365 * 86400 if at == 30 else 0,
    "ten rows 2 h late": lambda at, _: 7200 if 30 <= at < 40 else 0,
    "the second row of a sample 5 min late": lambda at, gpu: 300 if at == 30 and gpu else 0,
    "the second row of the last sample": lambda at, gpu: 300 if at == 59 and gpu else 0,
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_clock_that_is_wrong_for_a_while_moves_no_other_times(
    tmp_path: Path, wrong: Callable[[int, int], float]
) -> None:
    lines = [row(at + 0.001 * gpu + wrong(at, gpu), gpu) for at in range(60) for gpu in range(2)]
    path = log_of(tmp_path, lines)
    for line in gpus_of(path).values():
        assert seconds(line["covered_hours"]) == pytest.approx(59, abs=0.01)
        assert not line["gaps"]
        assert line["first"].startswith("2026-05-21T10:00:00")
        assert line["last"].startswith("2026-05-21T10:00:59")
    expected = [BEGIN.timestamp() + at for at in range(60)]
    assert times_in_replay(path) == pytest.approx(expected, rel=0, abs=0.01)


def of_one_row_a_second(tmp_path: Path, wrong: Callable[[int], float]) -> list[float]:
    """The times of a log of 60 seconds, since its beginning, of which some are wrong."""
    path = log_of(tmp_path, [row(at + wrong(at), 0) for at in range(60)])
    return [at - BEGIN.timestamp() for at in times_in_replay(path)]


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize(
    ("wrong", "late"),
    [
        *(pytest.param([at], late, marks=SLOW) for at in range(1, 59) for late in (3600, -3600)),
        # The time between them is right.
        ([20, 25], 3600),
    ],
    ids=str,
)
def test_a_clock_may_be_wrong_in_any_row_but_the_first_and_last(
    tmp_path: Path, wrong: list[int], late: int
) -> None:
    times = of_one_row_a_second(tmp_path, lambda at: late if at in wrong else 0)
    assert times == pytest.approx(list(range(60)), rel=0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(1, 49))
def test_a_clock_may_be_wrong_in_ten_rows_anywhere(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "CHUNK", 3000)
    times = of_one_row_a_second(tmp_path, lambda at: 3600 if place <= at < place + 10 else 0)
    assert times == pytest.approx(list(range(60)), rel=0, abs=0.01)


def test_no_time_is_invented_between_two_rows_with_a_wrong_clock(tmp_path: Path) -> None:
    wrong = {30: 3600, 72: 3600}
    path = log_of(tmp_path, [row(60 * at + wrong.get(at, 0), 0) for at in range(200)])
    line = gpus_of(path)[0]
    assert seconds(line["covered_hours"]) == pytest.approx(60 * 199, abs=0.01)
    assert line["first"].startswith("2026-05-21T10:00:00")


@pytest.mark.slow
@pytest.mark.parametrize("place", range(1, 49))
def test_a_setback_in_a_log_of_many_rows_keeps_all_of_them(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "CHUNK", 1500)
    times = of_one_row_a_second(tmp_path, lambda at: -3600 if at >= place else 0)
    assert len(times) == 60
    assert times[-1] - times[0] == pytest.approx(58, abs=0.1)


def test_two_gaps_are_no_wrong_clock(tmp_path: Path) -> None:
    times = [*range(100), *range(200, 700), *range(800, 900)]
    line = gpus_of(log_of(tmp_path, [row(at, 0) for at in times]))[0]
    assert line["gaps"] == 2
    assert seconds(line["gap_hours"]) == pytest.approx(200, abs=10)


def test_a_clock_that_was_set_forward_and_back_between_runs_loses_no_time(tmp_path: Path) -> None:
    times = [*range(100), *range(7200, 7300), *range(101, 200)]
    line = gpus_of(log_of(tmp_path, [row(at, 0) for at in times]))[0]
    assert seconds(line["covered_hours"]) == pytest.approx(99 + 99 + 98, abs=3)


# Headings and cells


def only_gpu(path: Path) -> Gpu:
    return replayed(path)[-1].gpus[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "headings",
    [
        "timestamp,index,gpu_utilization[%],memory.used[MiB],memory.total[MiB],power.draw[W]",
        "time,gpu,utilization_gpu,memory_used,memory_total,power_draw",
        "Timestamp,GPU Index,GPU Utilization (%),Memory Used (MiB),Memory Total (MiB),Power (W)",
        "datetime,gpu_id,gpu_util_pct,memory_used_mib,memory_total_mib,power_w",
        SIMPLE.replace(",", ";"),
        SIMPLE.replace(",", "\t"),
        SIMPLE.replace(",", '","').join('""'),
    ],
)
def test_headings_and_cells_as_scripts_write_them_are_read(tmp_path: Path, headings: str) -> None:
    lines = simple(TIMES["UTC"])
    if ";" in headings:
        lines = [line.replace(",", ";").replace(".12", ",12") for line in lines]
    elif "\t" in headings:
        lines = [line.replace(",", "\t") for line in lines]
    elif '"' in headings:
        lines = [line.replace(",", '","').join('""') for line in lines]
    path = log_of(tmp_path, lines, f"\ufeff{headings}")
    line = gpus_of(path)[0]
    assert line["utilization_mean_percent"] == 97
    assert line["memory_peak_bytes"] == 20480 * 2**20
    assert line["energy_kwh"] == pytest.approx(300.12 * 59 / 3.6e6, rel=0.001)
    shown = only_gpu(path)
    assert (shown.index, shown.utilization_gpu, shown.power_draw) == (0, 97, 300.12)
    assert shown.memory_total == 49140 * 2**20


def test_other_units_in_headings_are_converted(tmp_path: Path) -> None:
    headings = "timestamp,index,memory.used [GiB],memory.total [GB],power.draw [mW]"
    path = log_of(tmp_path, [f"{stamp(at)},0,20,48,300120" for at in range(9)], headings)
    shown = only_gpu(path)
    assert shown.memory_used == 20 * 2**30
    assert shown.memory_total == 48 * 2**30
    assert shown.power_draw == pytest.approx(300.12)


def test_units_without_a_space_are_read(tmp_path: Path) -> None:
    headings = "timestamp,index,utilization.gpu,memory.used,power.draw,temperature.gpu"
    path = log_of(tmp_path, [f"{stamp(at)},0,97%,20480MiB,300.1W,60C" for at in range(9)], headings)
    shown = only_gpu(path)
    assert (shown.utilization_gpu, shown.power_draw, shown.temperature_gpu) == (97, 300.1, 60)
    assert shown.memory_used == 20480 * 2**20
    assert not any("damaged" in note for note in report(path)["notes"])


@pytest.mark.parametrize("heading", ["elapsed", "elapsed [s]", "Elapsed (s)"])
def test_the_elapsed_time_of_a_script_is_no_clock(tmp_path: Path, heading: str) -> None:
    headings = f"timestamp,index,{heading},utilization.gpu,power.draw"
    lines = [f"{stamp(at)},0,{1000 * at},97,300" for at in range(60)]
    path = log_of(tmp_path, lines, headings)
    found = report(path)
    assert seconds(found["lines"][0]["covered_hours"]) == pytest.approx(59, abs=0.01)
    assert found["lines"][0]["energy_kwh"] == pytest.approx(300 * 59 / 3.6e6, rel=0.001)
    assert "No GPU reported an error." not in found["notes"]


@pytest.mark.slow
@pytest.mark.parametrize("label", ["GPU{}", "GPU {}", "cuda:{}", "gpu{}"])
@pytest.mark.parametrize("heading", ["gpu", "index"])
def test_gpus_with_a_word_before_their_index_are_told_apart(
    tmp_path: Path, label: str, heading: str
) -> None:
    lines = [
        f"{stamp(at)},{label.format(gpu)},{8 * gpu},300" for at in range(9) for gpu in range(12)
    ]
    path = log_of(tmp_path, lines, f"timestamp,{heading},utilization.gpu,power.draw")
    gpus = gpus_of(path)
    means = {index: line["utilization_mean_percent"] for index, line in gpus.items()}
    assert means == {gpu: 8 * gpu for gpu in range(12)}
    assert [gpu.index for gpu in replayed(path)[-1].gpus] == list(range(12))


@pytest.mark.parametrize(
    ("key", "form"),
    [("uuid", "GPU-{}"), ("pci.bus_id", "00000000:0{}:00.0"), ("serial", "13205{}")],
)
def test_gpus_without_an_index_have_lines_of_their_own_with_what_identifies_them(
    tmp_path: Path, key: str, form: str
) -> None:
    ids = [form.format(gpu) for gpu in range(3)]
    lines = [
        f"{stamp(at + 0.001 * gpu)}, {name}, {30 * gpu} %, 300.00 W"
        for at in range(9)
        for gpu, name in enumerate(ids)
    ]
    path = log_of(tmp_path, lines, f"timestamp, {key}, utilization.gpu [%], power.draw [W]")
    found = report(path)["lines"]
    assert [line[key.replace(".", "_")] for line in found] == ids
    assert [line["utilization_mean_percent"] for line in found] == [0, 30, 60]
    assert all(seconds(line["covered_hours"]) == pytest.approx(8, abs=0.01) for line in found)
    assert all(name in printed(path, width=100) for name in ids)


def test_a_column_gpu_with_the_utilisation_is_no_index(tmp_path: Path) -> None:
    lines = [f"{stamp(at)},{(97, 99, 45, 0, 12, 88)[at % 6]},45" for at in range(60)]
    path = log_of(tmp_path, lines, "time,GPU,temp")
    found = report(path)
    [line] = found["lines"]
    assert line["index"] == 0
    assert seconds(line["covered_hours"]) == pytest.approx(59, abs=0.01)
    assert any("does not know the column GPU;" in note for note in found["notes"])


@pytest.mark.slow
@pytest.mark.parametrize("heading", ["gpu", "device", "gpu_id", "GPU Index", "gpu_number"])
@pytest.mark.parametrize("are_busy", [True, False], ids=["busy", "of one job"])
@pytest.mark.parametrize("form", ["{}", "{:02}", "{}.0", "GPU-000000{}"])
def test_gpus_that_are_logged_only_at_times_have_lines_of_their_own(
    tmp_path: Path, heading: str, are_busy: bool, form: str
) -> None:
    lines = [
        f"{stamp(at)},{form.format(gpu)},{10 * gpu}"
        for at in range(240)
        for gpu in range(6)
        if ((gpu < 2 or at >= 200) if are_busy else at // 20 % 6 == gpu * 5 % 6)
    ]
    path = log_of(tmp_path, lines, f"timestamp,{heading},gpu_util")
    found = report(path)["lines"]
    key = "uuid" if form.startswith("GPU") else "index"
    names = [form.format(gpu) if key == "uuid" else gpu for gpu in range(6)]
    assert [line[key] for line in found] == names
    assert [line["utilization_mean_percent"] for line in found] == [10 * gpu for gpu in range(6)]


@pytest.mark.parametrize(
    ("headings", "cells", "names"),
    [
        ("memory_used,memory_total", "19.5,48", "memory_total (unit unknown), memory_used (unit"),
        ("utilization,memory_used", "0.97,20000", "utilization (unit unknown)"),
        ("memory_used,fan", "42.4,30", "memory_used (unit unknown)"),
        ("memory_free,fan", "42.4,30", "memory_free (unit unknown)"),
        # Nobody knows these units and names.
        ("memory.used [furlong],load", "20,48", "memory.used [furlong], load;"),
        ("memory.used [furlong],encoder.stats.sessionCount", "20,0", "memory.used [furlong];"),
    ],
)
def test_numbers_that_cannot_have_the_usual_unit_are_unknown(
    tmp_path: Path, headings: str, cells: str, names: str
) -> None:
    lines = [f"{stamp(at)},0,{cells}" for at in range(9)]
    found = report(log_of(tmp_path, lines, f"timestamp,index,{headings}"))
    [line] = found["lines"]
    assert line["utilization_mean_percent"] is None
    assert (line["memory_peak_bytes"] is None) == ("memory" in names)
    [note] = [note for note in found["notes"] if "does not know the column" in note]
    assert names in note


@pytest.mark.slow
def test_a_utilisation_up_to_1_is_unknown_after_a_long_idle_time_too(tmp_path: Path) -> None:
    lines = [f"{stamp(at)},0,{'0.0' if at < 2300 else 0.97}" for at in range(2400)]
    found = report(log_of(tmp_path, lines, "timestamp,index,utilization"))
    assert found["lines"][0]["utilization_mean_percent"] is None
    assert any("column utilization (unit unknown)" in note for note in found["notes"])


def test_a_size_of_the_memory_that_is_0_now_and_then_is_of_the_same_gpu(tmp_path: Path) -> None:
    empty = VALUES.replace("49140", "0")
    path = log_of(tmp_path, [row(at, 0, empty if at % 7 == 3 else VALUES) for at in range(60)])
    line = gpus_of(path)[0]
    assert seconds(line["covered_hours"]) == pytest.approx(59, abs=0.01)
    assert line["memory_peak_bytes"] == 20000 * 2**20


WARNING = "WARNING: infoROM is corrupted at gpu 0000:02:00.0"
MESSAGES = [
    ["Failed to initialize NVML: Driver/library version mismatch", "NVML library version: 5.4"],
    [
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.",
        "Please also try adding directory that contains libnvidia-ml.so to your system PATH.",
    ],
    ["nvidia-smi: error while loading shared libraries: libnvidia-ml.so.1: cannot open"],
    ["GPU 00000000:02:00.0: Detected Critical Xid Error"],
]
BEFORE_THE_HEADINGS = ("has 1 line before the headings, which",)


@pytest.mark.parametrize(
    ("before", "among", "said"),
    [
        (["nohup: ignoring input"], [], BEFORE_THE_HEADINGS),
        (["# logged on box"], [], BEFORE_THE_HEADINGS),
        (["$ nvidia-smi --query-gpu=timestamp,name"], [], BEFORE_THE_HEADINGS),
        ([WARNING], [WARNING], ("2 messages", f"in line 1: {WARNING}")),
        *(([], lines, (f"has {len(lines)} message", lines[0])) for lines in MESSAGES),
    ],
)
def test_other_lines_are_counted_and_no_damage(
    tmp_path: Path, before: list[str], among: list[str], said: tuple[str, ...]
) -> None:
    lines = [row(at, 0) for at in range(9)]
    path = write(tmp_path / "gpu.csv", [*before, HEADINGS, *lines[:4], *among, *lines[4:]])
    found = report(path)
    assert seconds(found["lines"][0]["covered_hours"]) == pytest.approx(8, abs=0.01)
    assert any(all(words in note for words in said) for note in found["notes"])
    assert not any("damaged" in note for note in found["notes"])
    assert len(replayed(path)) == 9


@pytest.mark.parametrize("said", MESSAGES)
def test_messages_without_rows_are_no_log(tmp_path: Path, said: list[str]) -> None:
    path = write(tmp_path / "alone.csv", said)
    assert "has a message of nvidia-smi and no rows" in refusal(path)


@pytest.mark.parametrize("headings", [HEADINGS, HEADINGS.replace("timestamp", "time")])
@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("form", ["%Y/%m/%d %H:%M:%S.%f", "%s", "%a %b %d %H:%M:%S UTC %Y"])
def test_rows_before_the_headings_are_refused(
    tmp_path: Path, headings: str, count: int, form: str
) -> None:
    times = [BEGIN + timedelta(seconds=at) for at in range(2 * count)]
    lines = [f"{time:{form}}, 0, {VALUES}" for time in times]
    path = write(tmp_path / "gpu.csv", [*lines[:count], headings, *lines[count:]])
    assert "has rows and no headings" in refusal(path)


def test_a_gpu_that_a_message_before_the_headings_names_is_not_called_well(tmp_path: Path) -> None:
    path = write(tmp_path / "gpu.csv", [NO_HANDLE, HEADINGS, *(row(at, 0) for at in range(9))])
    notes = report(path)["notes"]
    assert any(f"in line 1: {NO_HANDLE}" in note for note in notes)
    assert "The log has no XIDs." in notes


# Files of another kind

KINDS: dict[str, tuple[str, str]] = {
    "gpumon's processes": (PROCESS_HEADER.decode(), "has the processes of a log, without its GPUs"),
    "dmon --format csv": ("#gpu, pwr, gtemp\n#Idx, W, C\n0, 61, 34\n", "nvidia-smi dmon"),
    "dcgmi": ("#Entity   GPUTL   POWER\nID                W\nGPU 0     0   61.2\n", "dcgmi dmon"),
    "-q": ("\n==============NVSMI LOG==============\n\nTimestamp : Thu\n", "nvidia-smi -q"),
    "-L": ("GPU 0: NVIDIA A100 (UUID: GPU-1)\n", "the list of nvidia-smi -L"),
    "dmon without headings": (
        "    0     61     34      -      0      0   1593    210\n" * 3,
        "perhaps rows of nvidia-smi dmon",
    ),
    "-q through grep": ("    Gpu                       : 97 %\n" * 3, "nvidia-smi -q"),
    "topo": ("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-31\n", "nvidia-smi topo"),
    "rocm-smi": ("device,GPU use (%),GFX Activity\ncard0,97,123\n", "output of rocm-smi"),
    "amd-smi": ("gpu,gfx_activity,umc_activity\n0,97,3\n", "output of amd-smi"),
    "tegrastats": ("05-21-2026 10:00:00 RAM 1/6MB EMC_FREQ 0% GR3D_FREQ 0%@0\n", "tegrastats"),
    "Grafana": ('"Time","GPU 0","GPU 1"\n"2026-05-21 10:00:00","97","3"\n', "of single GPUs"),
    "columns of a script": ("timestamp,gpu0_util,gpu1_util\n2026-05-21 10:00:00,9,3\n", "(gpu0"),
    "no times": ("ID,Name,GPU util.,Memory used\n0,A100,97%,20000MB\n", "no column timestamp"),
    "processes without times": ("pid, process_name, used_memory [MiB]\n7, a, 3 MiB\n", "no GPUs"),
    "no headings": ("2026/05/21 10:00:00.000, NVIDIA A100, P0, 44, 80 %, 3 MiB\n", "no headings"),
    "an error": ("NVIDIA-SMI has failed because it could not\n", "has a message of nvidia-smi"),
    "no nvidia-smi": ("bash: nvidia-smi: command not found\n", "has a message of nvidia-smi"),
    "gpustat --json": ('{\n  "hostname": "a",\n  "query_time": "b",\n', "is the JSON of gpustat"),
    "nvtop -s": ('[\n  {\n   "device_name": "NVIDIA A100",\n', "is the JSON of nvtop"),
    "JSON": ('{"time": "2026-05-21", "gpu": 0}\n', "is JSON and no log"),
    "Prometheus": ("# HELP a b\n# TYPE a gauge\na 1\n", "a page of metrics"),
    "telegraf": ("nvidia_smi,index=0 utilization_gpu=97i 1779357600000000000\n", "telegraf"),
    "HTML": ("<!DOCTYPE html>\n<html>\n", "is a web page"),
    "gzip": ("\x1f\udc8b\x08", "is compressed with gzip"),
    "gzip with a carriage return": ("\x1f\udc8b\x08\r1", "is compressed with gzip"),
    "xlsx": ("PK\x03\x04", "is a spreadsheet"),
    "a terminal": ("\x1b[H\x1b[2J\x1b[3J", "is a recording of a terminal"),
}
LONGER_KINDS = """
== dmon: is the output of nvidia-smi dmon
# gpu    pwr  gtemp  mtemp     sm    mem
# Idx      W      C      C      %      %
    0     61     34     40      0      0
== dmon -o DT: is the output of nvidia-smi dmon
#Date       Time        gpu    pwr  gtemp
#YYYYMMDD   HH:MM:SS    Idx      W      C
 20260521   10:00:00      0     61     34
== dmon -o DT --format csv: is the output of nvidia-smi dmon
#Date, Time, gpu, pwr, gtemp
#YYYYMMDD, HH:MM:SS, Idx, W, C
20260521, 10:00:00, 0, 61, 34
== pmon: is the output of nvidia-smi pmon
# gpu         pid   type     sm    mem    command
# Idx           #    C/G      %
    0       1234     C     97     40    python
== the table: is the table that nvidia-smi prints
Thu May 21 10:00:00 2026
+---------+
| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2     |
== -q -x: is the XML of nvidia-smi
<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "x.dtd">
<nvidia_smi_log>
== processes: has processes and no GPUs
timestamp, gpu_uuid, pid, process_name, used_gpu_memory [MiB]
2026/05/21 10:00:00.000, GPU-1, 77, python, 300 MiB
== accounted processes: has processes and no GPUs
timestamp, gpu_uuid, pid, gpu_utilization [%], max_memory_usage [MiB], time [ms]
2026/05/21 10:00:00.000, GPU-1, 77, 40 %, 300 MiB, 1234 ms
== processes of old drivers: has processes and no GPUs
timestamp, gpu_uuid, pid, process_name, used_memory [MiB]
2026/05/21 10:00:00.000, GPU-1, 77, python, 300 MiB
== processes of a script: has processes and no GPUs
timestamp,gpu,PID,user,gpu_util,memory_used
2026-05-21 10:00:00,0,77,ann,40,300
== dmon through ts: is the output of nvidia-smi dmon
May 21 10:00:00 # gpu    pwr  gtemp     sm    mem
May 21 10:00:00 # Idx      W      C      %      %
== dmon after a warning: is the output of nvidia-smi dmon
WARNING: infoROM is corrupted at gpu 0000:01:00.0
# gpu    pwr  gtemp  sm    mem
== dcgmi with times: dcgmi dmon
2026-05-21T10:00:00Z # Entity   GPUTL   POWER
2026-05-21T10:00:00Z ID      W
== Weights & Biases: has columns of single GPUs (system.gpu.0.gpu, system.gpu.0.memory)
_runtime,_timestamp,system.gpu.0.gpu,system.gpu.0.memory
0,1779357600.1,97,40
== nvitop's collector: has columns of single GPUs (cuda:0 (gpu:0)/memory_used (MiB)/mean)
tag,timestamp,cuda:0 (gpu:0)/memory_used (MiB)/mean
train,1779357600.5,2000
== srun -l: has '0: ' before the column timestamp in line 1
0: timestamp, index, power.draw [W]
0: 2026/05/21 10:00:00.000, 0, 300.00 W
== gpustat: is the output of gpustat
box  Thu May 21 10:00:00 2026  535.54.03
[0] NVIDIA A100-SXM4-80GB | 34'C,   0 % |     3 / 81920 MB |
"""
for kind in LONGER_KINDS.split("\n== ")[1:]:
    heading, _, content = kind.rstrip("\n").partition("\n")
    name, _, said = heading.partition(": ")
    KINDS[name] = (f"{content}\n", said)


@pytest.mark.parametrize(("content", "says"), KINDS.values(), ids=KINDS)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "gpu.csv"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert says in refusal(path)


PROCESS_HEADINGS = "timestamp,pid,gpu,power.draw [W],memory.used [MiB]"


@pytest.mark.parametrize(
    "headings", [PROCESS_HEADINGS, "timestamp,pid,index,utilization.gpu [%],memory.used [MiB]"]
)
@pytest.mark.parametrize("pids", [("4711",), ("4711", "4712"), ("4711", "")])
def test_a_log_of_gpus_with_the_pid_of_its_program_or_of_their_job_is_read(
    tmp_path: Path, headings: str, pids: Sequence[str]
) -> None:
    lines = [
        f"{stamp(at)},{pids[at * len(pids) // 60]},{gpu},{30 + gpu},300"
        for at in range(60)
        for gpu in range(2)
    ]
    gpus = gpus_of(log_of(tmp_path, lines, headings))
    covered = {index: round(seconds(line["covered_hours"])) for index, line in gpus.items()}
    assert covered == {0: 59, 1: 59}


# Several GPUs, hosts or programs in one file


def alternating(step: float, cells: Sequence[str]) -> list[str]:
    return [
        f"{stamp(at + number * step)}, {values}"
        for at in range(60)
        for number, values in enumerate(cells)
    ]


ONE_INDEX = "timestamp, index, name, utilization.gpu [%], memory.used [MiB], power.draw [W]"
TWO_LOADS = alternating(0.001, ["0, A, 0 %, 5 MiB, 100.00 W", "0, A, 100 %, 5 MiB, 400.00 W"])
SAME = alternating(0.001, ["0, A, 50 %, 20 MiB, 300.00 W"] * 4)
INDEX_IS_SHARED = ("rows of one sample that share the same index", "to the query")
ADD_INDEX = ("add index to the query",)


def of_processes(apart: float) -> list[str]:
    return [
        f"{stamp(at + apart * pid)},{4711 + pid},0,300,{1000 * pid}"
        for at in range(60)
        for pid in range(2)
    ]


REFUSED_LOGS: dict[str, tuple[str, list[str], tuple[str, ...]]] = {
    "four rows of index 0": (ONE_INDEX, SAME, INDEX_IS_SHARED),
    "a single sample": (ONE_INDEX, SAME[:4], INDEX_IS_SHARED),
    "two loads of index 0": (ONE_INDEX, TWO_LOADS, INDEX_IS_SHARED),
    "two loads of index 0 in whole seconds": (ONE_INDEX, whole_seconds(TWO_LOADS), INDEX_IS_SHARED),
    "two names of index 0": (
        ONE_INDEX,
        alternating(0.001, [f"0, {name}, 50 %, 5 MiB, 300.00 W" for name in "AB"]),
        INDEX_IS_SHARED,
    ),
    "each index twice": (
        ONE_INDEX,
        alternating(
            0.001, [f"{gpu // 2}, A, 5 %, {9 * gpu} MiB, {100 * gpu + 50}.00 W" for gpu in range(4)]
        ),
        INDEX_IS_SHARED,
    ),
    "two names of a bus id": (
        ONE_INDEX.replace("index", "pci.bus_id"),
        alternating(0.3, [f"00000000:01:00.0, {name}, 5 %, 5 MiB, 300.00 W" for name in "AB"]),
        ("rows of one sample that share the same pci.bus_id", "to the query"),
    ),
    "a GPU is missing later": (
        UNKEYED,
        [*bursts(4, 30), *(unkeyed(30 + at) for at in range(29))]
        + [unkeyed(60 + at + number / 1000) for at in range(30) for number in range(3)],
        ADD_INDEX,
    ),
    "two rows a second": (
        UNKEYED,
        whole_seconds(unkeyed(at) for at in range(60) for _ in range(2)),
        ADD_INDEX,
    ),
    "names in no order": (
        UNKEYED,
        [
            unkeyed(at + number / 1000, name="AB"[(at + number) // 3 % 2])
            for at in range(30)
            for number in range(2)
        ],
        ADD_INDEX,
    ),
    **{
        f"{gpus} rows in steps of {step} s each {interval} s": (
            UNKEYED,
            bursts(gpus, step=step, interval=interval),
            ADD_INDEX,
        )
        for gpus, step, interval in ((2, 0.3, 1), (3, 0.03, 0.1), (2, 0.4, 1), (4, 0.2, 1))
    },
    "names as indices": (
        "time,gpu,temp",
        [f"{stamp(at)},NVIDIA {('A100', 'H100')[at // 50 % 2]},45" for at in range(300)],
        ("has rows of several GPUs and no column",),
    ),
    "a decimal comma": (
        SIMPLE,
        [line.replace(".12", ",12") for line in simple(TIMES["UTC"])],
        ("rows of 7 cells below 6 headings", "decimal comma"),
    ),
    **{
        f"two processes {apart} s apart": (
            PROCESS_HEADINGS,
            of_processes(apart),
            ("has processes and no GPUs",),
        )
        for apart in (0, 0.02, 0.5)
    },
}


@pytest.mark.parametrize(("headings", "lines", "says"), REFUSED_LOGS.values(), ids=REFUSED_LOGS)
def test_rows_whose_gpus_or_values_are_not_certain_are_refused(
    tmp_path: Path, headings: str, lines: list[str], says: tuple[str, ...]
) -> None:
    said = refusal(log_of(tmp_path, lines, headings))
    assert [words for words in says if words not in said] == []


LOADS = "timestamp, {}, utilization.gpu [%]"
CERTAIN: dict[str, tuple[str, list[str], list[tuple[int, int, float | None]]]] = {
    "a serial of zero": (
        LOADS.format("serial"),
        alternating(0.001, [f"0, {10 * gpu} %" for gpu in range(4)]),
        [(gpu, 59, 10 * gpu) for gpu in range(4)],
    ),
    "an index that all share, and UUIDs": (
        LOADS.format("index, uuid"),
        alternating(0.001, [f"0, GPU-{gpu}, {10 * gpu} %" for gpu in range(3)]),
        [(0, 59, 10 * gpu) for gpu in range(3)],
    ),
    "two programs that see a load rise and fall": (
        HEADINGS,
        [
            row(at + late, 0, VALUES.replace("50 %", f"{(at * 7 + late * 10) % 90:.0f} %"))
            for at in range(60)
            for late in (0.0, 0.3)
        ],
        [(0, 59, 42.391)],
    ),
    "whole seconds of a longer interval": (
        UNKEYED,
        whole_seconds(unkeyed(at * 1.5) for at in range(60)),
        [(0, 88, 50)],
    ),
    "whole minutes of a shorter interval": (
        HEADINGS,
        [f"{stamp(at)[:16]}, 0, {VALUES}" for at in range(600)],
        [(0, 540, 50)],
    ),
    "one GPU with pauses": (
        UNKEYED,
        [unkeyed(begin + at) for begin in (0, 700, 4000) for at in range(60)],
        [(0, 182, 50)],
    ),
    "small values under a heading gpu": (
        "time,GPU,temp",
        [f"{stamp(at)},{at * 7919 % 1009 % 60},45" for at in range(300)],
        [(0, 299, None)],
    ),
    "an idle GPU with decimals": (
        "timestamp,index,utilization",
        [f"{stamp(at)},0,0.0" for at in range(60)],
        [(0, 59, 0)],
    ),
}


@pytest.mark.parametrize(("headings", "lines", "expected"), CERTAIN.values(), ids=CERTAIN)
def test_rows_that_can_be_of_one_gpu_only_are_of_that_one(
    tmp_path: Path, headings: str, lines: list[str], expected: list[tuple[int, int, float | None]]
) -> None:
    path = log_of(tmp_path, lines, headings)
    found = [
        (line["index"], round(seconds(line["covered_hours"])), line["utilization_mean_percent"])
        for line in report(path)["lines"]
    ]
    assert found == expected
    assert {len(sample.gpus) for sample in replayed(path)} == {len(expected)}


@pytest.mark.parametrize("heading", ["host", "hostname", "node", "Host Name"])
@pytest.mark.parametrize("apart", [0.0, 0.1])
@pytest.mark.parametrize("key", ["index", "uuid"])
def test_several_hosts_are_refused_by_name(
    tmp_path: Path, heading: str, apart: float, key: str
) -> None:
    lines = [
        f"{stamp(at + host * apart)}, node{host}, {gpu if key == 'index' else f'GPU-{host}{gpu}'},"
        " 50 %, 300.00 W"
        for at in range(60)
        for host in range(2)
        for gpu in range(2)
    ]
    headings = f"timestamp, {heading}, {key}, utilization.gpu [%], power.draw [W]"
    said = refusal(log_of(tmp_path, lines, headings))
    assert "(node0, node1)" in said
    assert '$2 == "node0"' in said


@pytest.mark.slow
def test_a_host_that_comes_late_is_named_and_does_not_count(tmp_path: Path) -> None:
    lines = [f"{stamp(at)}, node{at // 3000}, 0, {at // 3000} %" for at in range(3100)]
    path = log_of(tmp_path, lines, "timestamp, hostname, index, utilization.gpu [%]")
    found = report(path)
    [line] = found["lines"]
    assert line["utilization_mean_percent"] == 0
    assert {shown.host.name for shown in replayed(path)} <= {"node0", ""}
    assert any("100 rows that may be of any GPU" in note for note in found["notes"])


H100 = "NVIDIA H100, 10 %, 20000 MiB, 81559 MiB, 600.00 W, 60"


def two_logs(
    tmp_path: Path, late: float, second: str = VALUES, first: str = VALUES, count: int = 9
) -> list[Path]:
    """A log of nine seconds, and one that begins later."""
    one = [HEADINGS, *(row(at, 0, first) for at in range(9))]
    two = [HEADINGS, *(row(at + late, 0, second) for at in range(count))]
    return [write(tmp_path / "one.csv", one), write(tmp_path / "two.csv", two)]


def notes_of(logs: list[Path], words: str) -> list[str]:
    """The notes of a report with these words."""
    return [note for note in report(*logs)["notes"] if words in note]


def test_logs_with_different_gpus_under_one_index_are_refused(tmp_path: Path) -> None:
    said = refused(*two_logs(tmp_path, 0.4, H100))
    assert "have different GPUs (NVIDIA RTX A6000 with 48.0G, NVIDIA H100 with 79.6G)" in said
    assert "under one index at the same time" in said
    assert "add uuid to the query" in said


def test_a_later_log_may_have_another_gpu_under_an_index(tmp_path: Path) -> None:
    logs = two_logs(tmp_path, 9000, H100)
    [note] = notes_of(logs, "GPU 0 was")
    assert note.startswith("GPU 0 was RTX A6000, then H100: ")
    assert notes_of(logs, "overlap") == []


def test_a_damaged_name_makes_no_other_gpu(tmp_path: Path) -> None:
    damaged = VALUES.replace("A6000", "A\0\0\0\0")
    logs = [
        write(tmp_path / f"{wrong}.csv", [HEADINGS, *lines])
        for wrong, late in ((4, 0.0), (6, 0.4))
        for lines in [[row(at + late, 0, damaged if at == wrong else VALUES) for at in range(9)]]
    ]
    assert notes_of(logs[:1], "GPU 0 was") == notes_of(logs, "GPU 0 was") == []


def test_only_the_logs_that_overlap_are_named(tmp_path: Path) -> None:
    logs = two_logs(tmp_path, 0.4, count=5)
    third = write(tmp_path / "three.csv", [HEADINGS, *(row(at + 9, 0) for at in range(5))])
    [note] = notes_of([*logs, third], "overlap")
    assert str(logs[0]) in note
    assert str(logs[1]) in note


def test_a_gpu_whose_name_another_driver_wrote_is_the_same(tmp_path: Path) -> None:
    old = VALUES.removeprefix("NVIDIA ").replace("49140", "48685")
    logs = two_logs(tmp_path, 9, first=old)
    assert seconds(report(*logs)["lines"][0]["covered_hours"]) == pytest.approx(17, abs=0.01)
    assert notes_of(logs, "no UUIDs") == []


def test_logs_of_one_time_that_may_be_of_several_hosts_are_named(tmp_path: Path) -> None:
    logs = two_logs(tmp_path, 0.4)
    [note] = notes_of(logs, "no UUIDs")
    assert all(str(log) in note for log in logs)
    assert "if the files are of one host, this is right" in note
    assert "report files of different hosts one by one" in note


def varying(seconds: float, gpu: int) -> str:
    """A row with values that do not repeat soon."""
    at = int(seconds)
    return row(seconds, gpu, VALUES.replace("50 %", f"{at * 37 % 101} %"))


@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("form", [list, whole_seconds], ids=["milliseconds", "whole seconds"])
def test_a_file_that_was_appended_to_itself_is_noticed(
    tmp_path: Path, form: Callable[[list[str]], list[str]]
) -> None:
    lines = form([varying(at, gpu) for at in range(30) for gpu in range(2)])
    path = log_of(tmp_path, [*lines, HEADINGS, *lines])
    [note] = notes_of([path], "repeats")
    assert note.startswith(f"{path} repeats 30 earlier samples from line 63 on.")


@pytest.mark.usefixtures("_chunks")
def test_the_end_of_a_file_that_was_appended_to_it_is_noticed(tmp_path: Path) -> None:
    lines = [varying(at, gpu) for at in range(90) for gpu in range(2)]
    path = log_of(tmp_path, [*lines[:120], *lines[80:120], *lines[120:]])
    assert notes_of([path], "repeats 20 earlier samples from line 122 on")


@pytest.mark.slow
@pytest.mark.usefixtures("_chunks")
@pytest.mark.parametrize("back", [2, 10.5, 50])
def test_samples_after_a_clock_was_set_back_are_no_copies(tmp_path: Path, back: float) -> None:
    # An idle GPU, twice a second: its rows are often the same, and some are those of a second
    # that came before.
    idle = VALUES.replace("50 %", "0 %")
    lines = [
        row(at / 2 - back * (at > 200), 0, idle.replace("300", f"{at // 7 % 2 + 20}"))
        for at in range(400)
    ]
    path = log_of(tmp_path, whole_seconds(lines))
    assert notes_of([path], "repeats") == []
    # Samples that vary.
    lines = [varying(at, gpu) for at in range(101) for gpu in range(2)]
    lines += [row(at - back, gpu) for at in range(101, 200) for gpu in range(2)]
    assert notes_of([log_of(tmp_path, lines)], "repeats") == []


def test_another_gpu_under_the_same_index_is_named(tmp_path: Path) -> None:
    lines = [row(at, 0, VALUES if at < 5 else H100) for at in range(9)]
    [note] = notes_of([log_of(tmp_path, lines)], "GPU 0 was")
    assert note.startswith("GPU 0 was RTX A6000, then H100: there are no UUIDs")
    same = [row(at, 0, VALUES if at < 5 else VALUES.removeprefix("NVIDIA ")) for at in range(9)]
    assert notes_of([log_of(tmp_path, same)], "GPU 0 was") == []


def test_of_many_names_of_a_gpu_the_first_are_listed(tmp_path: Path) -> None:
    def notes(samples: int) -> list[str]:
        """Of a log with another name after so many samples."""
        names = [VALUES.replace("A6000", f"{at // samples}") for at in range(60)]
        lines = [row(at, 0, values) for at, values in enumerate(names)]
        return notes_of([log_of(tmp_path, lines)], "GPU 0 was")

    [note] = notes(2)
    names = "RTX 0, then RTX 1, then RTX 2, then RTX 3, then others, then RTX 29"
    assert note.startswith(f"GPU 0 was {names}: ")
    assert notes(1) == []
