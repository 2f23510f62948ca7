"""``gpumon report`` from its arguments to what it prints."""

from __future__ import annotations

import csv
import math
import os
import re
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from gpumon.makers.source import SourceError
from gpumon.model.processes import ProcessId, Workload
from gpumon.model.snapshot import GpuStatus, Host, Snapshot
from gpumon.recording.csv.files import log_files
from gpumon.recording.csv.recording import open_log
from gpumon.recording.playback.replay import ReplaySource
from gpumon.recording.recording import NO_SAMPLES, RecordingError
from gpumon.report.curves import GpuCurves
from gpumon.report.figures import BY, SCHEMA, figures_of
from gpumon.report.plot import draw
from gpumon.report.table import COLUMNS
from gpumon.report.window import parse_span
from gpumon.text.time_parsing import day_and_time
from tests import fork_server
from tests.build import GIB, NOON, gpu, process, snapshot
from tests.command import GPUMON, run_here, run_program
from tests.recording.csv.reading import change_cells, opened, pack
from tests.report.logs import Sample, changed, lines_of, printed, refused, report, write_log
from tests.report.page import PAGE, with_table

SPAN = f"{day_and_time(NOON)} to {day_and_time(NOON + 590)}"
LogOf: TypeAlias = "Callable[..., Path]"
HOUR = range(0, 3601, 10)
TEN_MINUTES = range(0, 600, 10)


def busy(seconds: Iterable[float], *, host: str = "ada-07", **options: Any) -> list[Sample]:
    """One card at 50 % and 360 W, with ann's process, at some seconds after noon."""
    processes = options.pop("processes", (process(sm=50),))
    card = gpu(**{"utilization_gpu": 50, "power_draw": 360.0, "energy": None, **options})
    samples = ((snapshot(NOON + at, card, processes=processes), float(at)) for at in seconds)
    return [(replace(taken, host=Host(name=host)), at) for taken, at in samples]


@pytest.fixture
def log(tmp_path: Path) -> LogOf:
    """Writes a log of a busy GPU, see ``busy``."""
    return lambda seconds, **options: write_log(tmp_path / "a.csv", busy(seconds, **options))


@pytest.fixture
def hour(log: LogOf) -> Path:
    return log(HOUR)


@pytest.fixture
def short(log: LogOf) -> Path:
    return log(TEN_MINUTES)


def test_energy_without_a_counter_is_power_times_time(hour: Path) -> None:
    [line] = report(hour)["lines"]
    assert line["energy_kwh"] == pytest.approx(0.36)
    assert line["energy_source"] == "power"
    assert line["busy_hours"] == line["gpu_hours"] == line["covered_hours"] == 1
    assert line["gaps"] == 0


def test_a_gap_counts_for_nothing_and_is_said(log: LogOf) -> None:
    path = log([*range(0, 100, 10), *range(1000, 1100, 10)])
    [line] = report(path)["lines"]
    assert line["covered_hours"] * 3600 == pytest.approx(90 + 25 + 90, abs=0.01)
    assert line["gaps"] == 1
    assert line["gap_hours"] * 3600 == pytest.approx(910 - 25, abs=0.01)
    assert "a gap, together at most 14m per GPU" in printed(path)


@pytest.mark.parametrize("moves", [(3600, 0), (-3600, 3600), (-3600, 0)])
def test_a_clock_that_was_set_is_no_gap(tmp_path: Path, moves: tuple[float, float]) -> None:
    told = [
        (replace(one, time=one.time + moved), second)
        for one, second in busy(range(0, 1000, 10))
        for moved in [0 if second < 300 else moves[second >= 700]]
    ]
    [line] = report(write_log(tmp_path / "a.csv", told))["lines"]
    assert line["covered_hours"] * 3600 == pytest.approx(990, abs=0.01)
    assert (line["gaps"], line["gap_hours"]) == (0, 0)


def test_a_log_that_changes_its_pace_has_no_gap(log: LogOf) -> None:
    [line] = report(log([*range(100), *range(100, 1000, 30)]))["lines"]
    assert line["gaps"] == 0


def test_only_what_lies_between_from_and_to_counts(log: LogOf) -> None:
    path = log(range(0, 7200, 10))
    for by in BY:
        [line] = report(path, by=by, first="-1h", last="-30m", now=NOON + 7000)["lines"]
        assert line["energy_kwh"] == pytest.approx(0.18)
        assert line["gpu_hours"] == pytest.approx(0.5)


def test_one_sample_is_told_without_any_hours(log: LogOf) -> None:
    path = log([0])
    [line] = report(path)["lines"]
    assert (line["covered_hours"], line["energy_kwh"]) == (0, None)
    assert line["memory_peak_bytes"] == GIB // 2
    shown = printed(path)
    assert "–" in shown
    assert "There is a single sample of each GPU" in shown
    assert "No processes were logged" not in shown
    assert "not in the log" not in shown


def test_logs_that_overlap_count_once(tmp_path: Path) -> None:
    one = write_log(tmp_path / "a.csv", busy(range(0, 3600, 10)))
    two = write_log(tmp_path / "b.csv", busy([second + 0.7 for second in range(0, 3600, 10)]))
    for logs in ([one, two], [one, one], [one, log_files(one).processes, two]):
        [line] = report(*logs)["lines"]
        assert line["covered_hours"] == pytest.approx(1, abs=0.003)
        [line] = report(*logs, by="user")["lines"]
        assert line["gpu_hours"] == pytest.approx(1, abs=0.003)
        assert line["present_hours"] == pytest.approx(1, abs=0.003)


def test_the_same_gpu_numbers_of_different_hosts_are_kept_apart(tmp_path: Path, hour: Path) -> None:
    two = write_log(tmp_path / "b.csv", busy(range(0, 1801, 10), host="bob-01"))
    for by in BY:
        hours = {line["host"]: line["gpu_hours"] for line in report(two, hour, by=by)["lines"]}
        assert hours == {"ada-07": 1, "bob-01": 0.5}
    assert "bob-01" in printed(hour, two, width=80)


@pytest.mark.slow
def test_rotated_and_packed_parts_are_one_log(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "whole.csv", busy(range(0, 3600, 10)))
    write_log(tmp_path / "run.part0001.csv", busy(range(0, 1200, 10)))
    write_log(tmp_path / "run.part0002.csv", busy(range(1200, 2400, 10)))
    run = write_log(tmp_path / "run.csv", busy(range(2400, 3600, 10)))
    packed = pack(tmp_path / "run.part0001.csv")
    pack(tmp_path / "run.part0001.processes.csv")
    for by in BY:
        lines = report(whole, by=by)["lines"]
        for parts in ([run], [packed], sorted(tmp_path.glob("run.*"))):
            assert report(*parts, by=by)["lines"] == lines
    assert printed(tmp_path / "run.part0002.csv").startswith("run.csv ")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no.csv", "There is no log at"),
        ("no", "There is no log at"),
        ("folder", "is a directory"),
        ("/", "is a directory"),
        ("letter.csv", "letter.csv"),
    ],
)
def test_replay_and_report_refuse_what_is_no_log_in_one_wording(
    tmp_path: Path, name: str, said: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "letter.csv").write_text("Dear all,\nthe cards are fine.\n")
    with pytest.raises(RecordingError) as caught:
        open_log(tmp_path / name)
    assert refused(tmp_path / name, by="user") == f"gpumon: {caught.value.sentence}\n"
    assert said in caught.value.sentence


def test_a_list_stands_until_the_next_one(log: LogOf) -> None:
    path = log(range(600))
    listed = log_files(path).processes.read_text().splitlines()
    assert len(listed) == 1 + 150, "else this tests nothing"
    assert report(path, by="user")["lines"][0]["gpu_hours"] == pytest.approx(599 / 3600, abs=1e-6)


def test_a_user_who_left_is_not_there_until_the_end(tmp_path: Path) -> None:
    here = busy(range(0, 600, 2), processes=(process(sm=50), process(7, user="bo", sm=0)))
    left = busy(range(600, 3600, 2), processes=(process(sm=50),))
    lines = lines_of(report(write_log(tmp_path / "a.csv", here + left), by="user"), "user")
    assert lines["bo"]["gpu_hours"] == pytest.approx(600 / 3600, abs=1e-6)
    assert lines["bo"]["idle_hours"] == lines["bo"]["gpu_hours"]
    assert lines["ann"]["gpu_hours"] == pytest.approx(3598 / 3600, abs=1e-6)


def test_a_list_of_one_user_alone_ends_with_that_user(log: LogOf) -> None:
    # Others stay on the card, so its count of processes stays above 0.
    path = log(range(600), processes=(process(user="bo"), process(7)))
    lists = log_files(path).processes
    header, *rows = lists.read_text().splitlines()
    place = header.split(",").index("elapsed [s]")
    kept = [row for row in rows if ",ann," in row and float(row.split(",")[place]) < 100]
    lists.write_text("\n".join([header, *kept, ""]))
    [line] = report(path, by="user")["lines"]
    assert line["user"] == "ann"
    assert line["gpu_hours"] * 3600 == pytest.approx(100, abs=12)


@pytest.mark.parametrize(
    ("sm", "energy"),
    [((30, 10), (0.27, 0.09)), ((None, 0), (0.18, 0.18)), ((0, 0), (0.18, 0.18))],
    ids=["by share", "equally where nobody tells", "equally where nobody works"],
)
def test_the_energy_of_a_shared_card_goes_by_sm_share(
    log: LogOf, sm: tuple[int | None, int], energy: tuple[float, float]
) -> None:
    shared = (process(1, user="ann", sm=sm[0]), process(2, user="bo", sm=sm[1]))
    lines = lines_of(report(log(HOUR, processes=shared), by="user"), "user")
    assert [lines[user]["energy_kwh"] for user in ("ann", "bo")] == pytest.approx(energy)
    assert lines["ann"]["energy_estimated"] is True


def test_a_job_that_was_looked_up_late_is_one_job(tmp_path: Path) -> None:
    placed = [replace(process(pid), place=Workload(slurm_job="88123")) for pid in (1, 2)]
    samples = busy([0, 10], processes=(process(1), process(2)))
    samples += busy(range(20, 3601, 10), processes=tuple(placed))
    [line] = report(write_log(tmp_path / "a.csv", samples), by="job")["lines"]
    assert (line["job"], line["processes"]) == ("slurm 88123", 2)
    assert line["gpu_hours"] == pytest.approx(1, abs=0.01)


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    again = replace(process(sm=50), id=ProcessId(100, 2))
    samples = busy(TEN_MINUTES) + busy(range(600, 1200, 10), processes=(again,))
    log = write_log(tmp_path / "a.csv", samples)
    assert [line["pid"] for line in report(log, by="process")["lines"]] == [100, 100]


def test_what_is_unknown_is_open_and_never_nought(log: LogOf) -> None:
    nothing = dict.fromkeys(
        ("utilization_gpu", "power_draw", "clock_event_reasons", "memory_used"), None
    )
    path = log(TEN_MINUTES, processes=(process(sm=None, memory_used=None),), **nothing)
    unknown = {
        *("utilization_mean_percent", "utilization_p95_percent", "memory_mean_bytes"),
        *("memory_peak_bytes", "busy_hours", "idle_hours", "energy_kwh", "heat_hours"),
    }
    for by in BY:
        [line] = report(path, by=by)["lines"]
        assert {key for key in unknown if line[key] is not None} == set()
        assert line["utilization_known"] == line["energy_known"] == 0
    assert "–" in printed(path, width=200)


def test_the_values_of_a_card_that_hangs_do_not_count_on(tmp_path: Path) -> None:
    samples = [
        (changed(one, 0, sampled_at=NOON + min(at, 300)), at) for one, at in busy(TEN_MINUTES)
    ]
    [line] = report(write_log(tmp_path / "a.csv", samples))["lines"]
    assert line["utilization_known"] == pytest.approx(330 / 590, abs=0.02)


LOST: dict[str, Any] = {"status": GpuStatus.LOST, "utilization_gpu": None, "power_draw": None}


def test_a_lost_card_is_told_with_its_time(tmp_path: Path) -> None:
    samples = busy(range(0, 1800, 10)) + busy(range(1800, 3601, 10), processes=(), **LOST)
    log = write_log(tmp_path / "a.csv", samples)
    [line] = report(log)["lines"]
    assert line["lost_hours"] == line["utilization_known"] == 0.5
    text = printed(log, width=80)
    assert "lost 30m" in text
    assert "0.180*" in text


SMI = "timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]\n"


def smi(tmp_path: Path) -> Path:
    path = tmp_path / "smi.log"
    rows = [
        f"2025/10/09 10:{at // 60:02}:{at % 60:02}.{card}00, {card}, GPU-{card}, NVIDIA A100,"
        f" {card * 100} %, 4000 MiB, 360.00 W\n"
        for at in range(0, 1810, 10)
        for card in range(2)
    ]
    path.write_text(SMI + "".join(rows))
    return path


def test_what_nvidia_smi_wrote_is_told_by_card(tmp_path: Path) -> None:
    told = report(smi(tmp_path))
    lines = lines_of(told, "index")
    assert sorted(lines) == [0, 1]
    for line in lines.values():
        assert line["energy_kwh"] == pytest.approx(0.18)
        assert line["gpu_hours"] is line["xids"] is line["host"] is None
        assert line["lost_hours"] == 0
    assert lines[0]["idle_hours"] == lines[1]["busy_hours"] == 0.5
    assert any("No processes were logged" in sentence for sentence in told["notes"])


def test_a_log_without_processes_says_so_when_asked_for_users(tmp_path: Path, short: Path) -> None:
    assert "lists no processes" in refused(smi(tmp_path), by="user")
    told = report(short, smi(tmp_path), by="user")
    assert [line["user"] for line in told["lines"]] == ["ann"]
    assert "smi.log: lists no processes" in told["notes"][0]


def test_a_log_that_names_no_host_is_of_the_host_whose_card_it_has(
    tmp_path: Path, short: Path
) -> None:
    path = tmp_path / "smi.csv"
    path.write_text(SMI + "2023/11/14 12:00:05.000, 0, GPU-0, NVIDIA H100, 50 %, 1 MiB, 360 W\n")
    assert [line["host"] for line in report(short, path)["lines"]] == ["ada-07"]


@pytest.fixture
def heat(log: LogOf) -> Path:
    return log(HOUR, clock_event_reasons=0x44)


@pytest.mark.slow
def test_the_table_fits_and_the_telling_columns_stay(heat: Path) -> None:
    for by in BY:
        for width in (60, 80, 100, 160, 200):
            rows = printed(heat, by=by, width=width).splitlines()
            assert max(map(len, rows)) <= max(width, 70)
            assert {"IDLE", "GPU-H", "kWh"} <= set(rows[1].split())


def test_commands_and_cards_outstay_the_finer_figures(heat: Path) -> None:
    for by in ("process", "job"):
        for width in (70, 80):
            headings = set(printed(heat, by=by, width=width).splitlines()[1].split())
            assert {"GPU", "COMMAND"} <= headings
            assert not {"MED", "P95", "HEAT"} & headings


def test_commands_are_shortened_as_on_the_dashboard(log: LogOf) -> None:
    folder = "/home/ann/llama"
    command = ("/opt/conda/bin/python", f"{folder}/my train.py", "--lr", "3e-4")
    path = log(TEN_MINUTES, processes=(replace(process(sm=50), command=command),))
    for by in ("process", "job"):
        wide, narrow = (printed(path, by=by, width=width) for width in (250, 100))
        assert f" python {folder}/my train.py --lr" in wide
        assert "  my train.py --" in narrow


@pytest.mark.slow
@pytest.mark.parametrize("by", BY)
def test_columns_that_found_no_room_are_named(heat: Path, by: str) -> None:
    whole = printed(heat, by=by, width=250)
    assert "Left out" not in whole
    narrow = printed(heat, by=by, width=70)
    said = " ".join(narrow.split()).partition("Columns that did not fit: ")[2]
    left_out = said.partition("; --format csv has all.")[0].replace("- ", "-").split(", ")
    headings, shown = (text.splitlines()[1].split() for text in (whole, narrow))
    assert [one for one in headings if one not in shown] == left_out != []


def test_small_amounts_do_not_round_away(log: LogOf) -> None:
    path = log(range(0, 97, 12))
    shown = printed(path)
    first, headings, line, *_ = shown.splitlines()
    told = dict(zip(headings.split(), line.replace("H100 80GB HBM3", "H100").split(), strict=True))
    assert told["COVERED"] == told["GPU-H"] == "1m36s"
    assert (told["Wh"], "kWh" in shown) == ("9.60", False)
    last = time.strftime("%H:%M:%S", time.localtime(NOON + 96))
    assert first.endswith(f"{day_and_time(NOON)} to {last} (1m36s)")
    shown = printed(path, by="user")
    assert "Wh is an estimate" in shown
    assert "kWh" not in shown


def test_when_a_line_was_seen_is_told_where_lines_differ(tmp_path: Path) -> None:
    samples = busy(HOUR)
    assert "FIRST" not in printed(write_log(tmp_path / "a.csv", samples))
    bo = process(2, user="bo", sm=10)
    both = [
        (replace(one, processes=(*one.processes, bo)) if at >= 1800 else one, at)
        for one, at in samples
    ]
    shown = printed(write_log(tmp_path / "b.csv", both), by="user", width=250)
    assert "FIRST" in shown
    assert "LAST" not in shown
    for clock in (NOON, NOON + 1800):
        assert time.strftime("%d %b %H:%M", time.localtime(clock)) in shown


def test_who_was_on_a_lost_card_is_not_known_to_be_nobody(log: LogOf) -> None:
    path = log(range(0, 601, 10), processes=(), **LOST, sampled_at=NOON - 60)
    [line] = report(path)["lines"]
    assert (line["gpu_hours"], line["gpu_hours_known"]) == (None, 0)
    headings, shown = printed(path).splitlines()[1:3]
    assert shown[: headings.index("GPU-H") + 5].endswith(" –")


def test_names_and_commands_cannot_act(log: LogOf) -> None:
    evil = replace(process(sm=50), user="=cmd()", command=("\x1b[2J", "\u202eevil"), name="+x")
    path = log(TEN_MINUTES, processes=(evil,))
    for by in BY:
        text = printed(path, by=by, width=250)
        assert "\x1b" not in text
        assert "\u202e" not in text
        [line] = report(path, by=by)["lines"]
        assert all(value.isprintable() for value in line.values() if isinstance(value, str))
        for row in csv.reader(printed(path, by=by, form="csv").splitlines()):
            assert not any(cell.startswith(("=", "+", "-", "@")) for cell in row)


def test_a_log_that_somebody_wrote_by_hand_cannot_act_either(short: Path) -> None:
    lists = log_files(short).processes
    lists.write_text(lists.read_text().replace(",ann,", ",a\u202en\x1b[2J,"), encoding="utf-8")
    [line] = report(short, by="user")["lines"]
    assert line["user"].isprintable()
    assert "\x1b" not in printed(short, by="user")


def test_the_csv_and_the_json_say_the_same(short: Path) -> None:
    for by in BY:
        [row] = csv.DictReader(printed(short, by=by, form="csv").splitlines())
        [line] = report(short, by=by)["lines"]
        assert list(row) == list(line)
        for key, value in line.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                assert float(row[key]) == value
            elif value is None:
                assert row[key] == ""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ({"first": "noon"}, 2, "is not a time"),
        ({"form": "csv", "plot": True}, 2, "--plot needs --format table"),
        ({"last": "2001-01-01"}, 1, f"has no sample before --to: it goes from {SPAN}."),
        ({"first": "-1h"}, 1, f"has no sample after --from: it goes from {SPAN}."),
        (
            {"first": "2001-01-01", "last": "2001-01-02"},
            1,
            f"has no sample between --from and --to: it goes from {SPAN}.",
        ),
    ],
)
def test_what_cannot_be_told_is_said_in_a_sentence(
    short: Path, arguments: dict[str, Any], status: int, said: str
) -> None:
    error = refused(short, status=status, **arguments)
    assert said in error
    assert error.count("\n") == 1


@pytest.fixture
def kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local clock shows half past five in the afternoon at noon UTC."""
    with monkeypatch.context() as changed_here:
        changed_here.setenv("TZ", "Asia/Kolkata")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("kolkata")
def test_the_plot_fits_its_width_and_has_local_times(hour: Path) -> None:
    for width in (80, 160):
        drawn = printed(hour, width=width, plot=True).partition("utilisation %")[2]
        assert "ada-07  GPU 0" in drawn
        assert "18:00" in drawn
        assert max(map(len, drawn.splitlines())) <= width
        assert any("\u2800" < character <= "\u28ff" for character in drawn)
        assert "\x1b" not in drawn


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [50, 170, 3600, 7000, 90_000, 400_000])
def test_the_plot_of_a_log_is_the_same_in_every_process(log: LogOf, seconds: int) -> None:
    path = log(range(0, seconds, max(1, seconds // 100)))
    command = [*GPUMON, "report", "--plot", str(path)]
    plots = {
        run_program(
            command, os.environ | {"PYTHONHASHSEED": seed, "COLUMNS": "120"}, check=True
        ).stdout
        for seed in "1234"
    }
    assert len(plots) == 1


def test_a_gap_is_left_open_in_the_plot(log: LogOf) -> None:
    path = log([*TEN_MINUTES, *range(3000, 3600, 10)])
    drawn = printed(path, width=80, plot=True).splitlines()
    curve = max(drawn, key=lambda line: sum("\u2800" < one <= "\u28ff" for one in line))
    assert " " * 30 in curve


def test_a_log_without_anything_to_plot_has_an_empty_plot(tmp_path: Path) -> None:
    log = tmp_path / "power.csv"
    log.write_text("timestamp, index, power.draw [W]\n2024/03/01 12:00:00.000, 0, 250.00 W\n")
    drawn = printed(log, width=80, plot=True)
    assert "GPU 0: no values" in drawn
    assert "1970" not in drawn
    assert not re.search(r"\d\d:\d\d", drawn.partition("no values")[2])


@pytest.mark.parametrize("times", [[0.0], [0.0, 0.3]])
def test_a_log_of_less_than_a_second_is_plotted(log: LogOf, times: list[float]) -> None:
    assert "ada-07  GPU 0" in printed(log(times), width=80, plot=True)


def test_plotext_is_imported_only_for_a_plot(short: Path) -> None:
    program = (
        "import sys\n"
        "from gpumon.report.output import print_report\n"
        "print_report([sys.argv[1]], plot=len(sys.argv) > 2)\n"
        "sys.stderr.write(str('plotext' in sys.modules))\n"
    )
    for arguments, imported in (([], "False"), (["--plot"], "True")):
        command = [sys.executable, "-c", program, str(short), *arguments]
        done = run_program(command, {**os.environ, "PYTHONIOENCODING": "utf-8"}, check=True)
        assert done.stderr == imported


def test_snapshots_of_no_card_are_no_harm(tmp_path: Path) -> None:
    empty = [(replace(one, gpus=()), second) for one, second in busy(range(5))]
    assert "no samples" in refused(write_log(tmp_path / "a.csv", empty))


def test_a_log_with_a_heading_only_is_told_in_one_sentence(log: LogOf) -> None:
    path = log([])
    asked: list[dict[str, Any]] = [
        {},
        {"by": "user"},
        {"last": "03:00"},
        {"first": "-1h", "last": "-1m"},
    ]
    for options in asked:
        assert refused(path, **options) == f"gpumon: {NO_SAMPLES}\n"
    log_files(path).processes.unlink()
    assert refused(path, by="user") == f"gpumon: {NO_SAMPLES}\n"
    with opened(path) as tape, pytest.raises(SourceError, match=NO_SAMPLES):
        ReplaySource(tape).open()


@pytest.fixture
def damaged(hour: Path) -> Path:
    """An hour of a card at 50 %, three of whose rows hold what cannot be."""
    load, memory = "utilization.gpu [%]", "memory.used [MiB]"
    # The first row is the second line.
    change_cells(
        hour,
        (18, load, "abc"),
        (28, load, "4294967295"),
        (38, load, "-1"),
        (48, memory, "4294967295"),
    )
    return hour


def test_damaged_lines_are_counted_and_the_first_is_named(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"{damaged} has 1 damaged line, line 20; unreadable values count as unknown."
    impossible = (
        f"{damaged} has 3 lines with values that no GPU can have, the first is line 30; these"
        " values count as unknown."
    )
    for sentence in (said, impossible):
        assert sentence in " ".join(printed(damaged, width=200).split("\n  ")).replace("\n", " ")
    assert report(damaged)["notes"][:2] == [said, impossible]
    assert capsys.readouterr().err == ""
    printed(damaged, form="csv")
    assert capsys.readouterr().err == f"gpumon: {said}\ngpumon: {impossible}\n"
    with damaged.open("a") as file:
        file.write("\n")
    lists = log_files(damaged).processes
    lists.write_text(lists.read_text() + "garbage\n")
    number = lists.read_text().count("\n")
    lists_said = f"{lists} has 1 damaged line, line {number}; unreadable values count as unknown."
    assert report(damaged)["notes"][:3] == [said, impossible, lists_said]
    damaged.write_text(damaged.read_text().splitlines()[0] + "\ngarbage\n")
    assert f"{NO_SAMPLES} {damaged} has 1 damaged line, line 2" in refused(damaged)


@pytest.mark.slow
def test_a_cell_that_cannot_be_counts_for_nothing_and_bounds_the_plot(damaged: Path) -> None:
    [line] = report(damaged)["lines"]
    assert (line["utilization_mean_percent"], line["idle_hours"]) == (50, 0)
    assert line["memory_peak_bytes"] == GIB // 2
    done = subprocess.run(
        [sys.executable, "-m", "gpumon", "report", "--plot", str(damaged)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_less_than_a_gibibyte,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU 0" in done.stdout


def _less_than_a_gibibyte() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (GIB, GIB))


@pytest.mark.slow
def test_what_draws_is_bounded_whatever_comes() -> None:
    cards = []
    for index in range(1000):
        card = GpuCurves("ada-07", NOON)
        card.index = index
        card.utilization.add(NOON, 50)
        card.utilization.add(NOON + 1, 1e6 * index)
        cards.append(card)
    tracemalloc.start()
    try:
        drawn = draw(cards, 80, 50, colour=False)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()
    assert drawn.count("GPU ") == 64
    assert drawn.endswith("936 more GPUs not drawn.\n")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["report"], ["--demo", "select", "--stable", "9s", "--from"]])
@pytest.mark.parametrize(
    "name",
    ["x" * 300 + ".csv", "x/" * 2300 + ".csv", "/proc/self/mem"],
    ids=["name", "path", "file"],
)
def test_a_name_that_the_system_refuses_is_told(command: list[str], name: str) -> None:
    done = fork_server.run([sys.executable, "-m", "gpumon", *command, name])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"gpumon: {name} cannot be read: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_what_was_spent_on_little_work_is_told_with_its_energy(tmp_path: Path) -> None:
    # Half an hour busy but empty, half an hour of real work; then as long idle, and slowed.
    full = {"utilization_gpu": 100, "sm_active": 80.0}
    spells = [
        {"utilization_gpu": 100, "sm_active": 10.0},
        full,
        {"utilization_gpu": 0, "sm_active": 0.0},
        full | {"clock_event_reasons": 0x80},
    ]
    night = [
        (changed(taken, 0, **spells[min(int(at) // 1800, 3)]), at)
        for taken, at in busy(range(0, 7201, 10))
    ]
    log = write_log(tmp_path / "a.csv", night)
    [line] = report(log)["lines"]
    assert line["empty_hours"] == line["idle_hours"] == line["power_brake_hours"] == 0.5
    assert line["empty_known"] == 1
    for key in ("empty_kwh", "idle_kwh", "slowed_kwh"):
        assert line[key] == pytest.approx(line["energy_kwh"] / 4, rel=0.01), key
    [owner] = report(log, by="job")["lines"]
    assert owner["empty_hours"] == 0.5
    assert owner["empty_kwh"] == pytest.approx(line["empty_kwh"])
    assert "EMPTY" in printed(log, width=250)


def test_without_the_columns_nothing_is_said_of_empty_gpus(short: Path) -> None:
    [line] = report(short)["lines"]
    assert line["empty_hours"] is line["empty_kwh"] is None
    assert line["empty_known"] == 0
    assert "EMPTY" not in printed(short, width=250)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("used", "state", "pause", "hours"),
    [
        (101.0, "R", 20, 2 / 3),
        (3.0, "D", 20, 2 / 3),
        (3.0, "S", 20, 0.0),
        (800.0, "R", 20, 0.0),
        (None, "S", 20, None),
        (101.0, "R", 40, 0.0),
    ],
    ids=["full core", "disk", "rests", "many threads", "unknown", "long pause"],
)
def test_what_a_gpu_waited_between_spells_of_load_is_told_if_data_may_be_prepared(
    tmp_path: Path, used: float | None, state: str, pause: int, hours: float | None
) -> None:
    owner = replace(process(sm=50), cpu_percent=used, state=state)
    log = write_log(
        tmp_path / "a.csv",
        (
            (changed(taken, 0, utilization_gpu=90 if elapsed % (pause + 10) < 10 else 5), elapsed)
            for taken, elapsed in busy(range(0, 3601, 5), processes=(owner,))
        ),
    )
    [line] = report(log)["lines"]
    assert line["starved_hours"] == (hours and pytest.approx(hours, abs=0.01))
    if hours:
        assert line["starved_kwh"] == pytest.approx(line["energy_kwh"] * hours, rel=0.02)
    [job] = report(log, by="job")["lines"]
    assert job["starved_hours"] == line["starved_hours"]
    assert ("STARVED" in printed(log, width=250)) == bool(hours)


def test_a_gpu_that_a_job_leaves_out_is_counted_for_it(tmp_path: Path) -> None:
    def ranks(second: int) -> Snapshot:
        loads = [90, 0 if second < 1800 else 90, 90]
        cards = [
            gpu(index=i, utilization_gpu=load, power_draw=360.0) for i, load in enumerate(loads)
        ]
        job = Workload(slurm_job="88123")
        there = [
            replace(process(100 + i, gpus=(i,), sm=load), place=job) for i, load in enumerate(loads)
        ]
        return snapshot(NOON + second, *cards, processes=tuple(there))

    log = write_log(tmp_path / "a.csv", [(ranks(at), float(at)) for at in HOUR])
    [line] = report(log, by="job")["lines"]
    assert line["left_out_hours"] == line["idle_hours"] == 0.5
    assert line["left_out_kwh"] == pytest.approx(0.18, rel=0.01)
    assert "left_out_hours" not in report(log)["lines"][0]
    assert "LEFT-OUT" in printed(log, by="job", width=250)


# ``docs/report.md`` says what the report does.

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_table_of_the_page_is_that_of_the_figures() -> None:
    assert with_table(TEXT) == TEXT, "run: python -m tests.report.page"


def test_the_page_explains_every_key_and_no_other(log: LogOf) -> None:
    path = log(range(3))
    table = TEXT.partition("<!-- keys: report -->\n")[2].partition("\n\n")[0]
    for by in BY:
        told = report(path, by=by)
        assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(told)
        assert told["schema"] == SCHEMA
        assert list(told["lines"][0]) == [figure.key for figure in figures_of(by)]
        assert set(told["total"]) < set(told["lines"][0])


def test_every_heading_of_the_table_is_explained_on_the_page_and_in_the_help() -> None:
    helped = run_here("report", "--help").stdout.partition("headings of the table:")[2]
    for by in BY:
        told = {name for one in figures_of(by) for name in one.heading.split(", ") if name}
        there = {column.heading for column in COLUMNS if by in column.by} | {"HOST"}
        assert there <= told
        # What is no abbreviation explains itself.
        plain = {"HOST", "GPU", "NAME", "USER", "PID", "JOB", "COMMAND", "ERRORS", "FIRST", "LAST"}
        assert all(re.search(rf"\b{name}(?![\w-])", helped) for name in there - plain)


def test_every_time_of_the_page_is_read() -> None:
    table = TEXT.partition("## Times")[2].partition("## How")[0]
    for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE):
        for form in re.findall(r"`([^`]+)`", row):
            assert math.isfinite(parse_span(form, None, NOON).first)
