"""The installed program on a real libnvidia-ml.so.1, with live processes as owners.

What stands on the screen is what the driver says, through every fault it can have.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.host.processes import ProcessReader
from gpumon.text.formatting import fit
from tests.command import GPUMON, run_program
from tests.driver import GIB, Driver, Owner, h100, h100_mig, owners, rtx4090, settle
from tests.lives import NEEDS_ALL_PIDS, user_name
from tests.screen import Screen

OWNER = user_name(os.getuid())
STRANGER = "daemon"
ME = "|".join(re.escape(fit(OWNER, min(cells, len(OWNER)))) for cells in (9, 16))
ME = f"(?:{ME})"
"""As the process table writes it."""


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Eight cards whose values stand still until a test moves them."""
    with Driver([h100() for _ in range(8)], driver_version="570.124.06") as made:
        for index, card in enumerate(made.cards):
            card.memory_used = (index + 1) * 9 * GIB
            card.utilization_gpu = 10 * index + 3
            card.temperature = 40 + index
            card.power_usage = 100_000 + 50_000 * index
        yield made


def screen_of(driver: Driver, *arguments: str, columns: int = 120, lines: int = 30) -> Screen:
    return Screen([*GPUMON, "-n", "0.1", *arguments], driver.env(), columns, lines)


def gpu_line(screen: Screen, index: int) -> str:
    """The line of a card, or nothing while there is none."""
    return next((line for line in screen.rows() if re.match(rf" {index} (H100|RTX)", line)), "")


def words_of(line: str) -> list[str]:
    """What a card's line says of its memory, utilisation, temperature and power."""
    values = re.search(r" (\S*/[\d.]+G|–) .*", re.sub(r"[▁-█⠀-⣿]", " ", line))
    return [] if values is None else values[0].split()[:4]


def without_limit(word: str) -> str:
    """A value whose limit is unknown: ``350W`` for ``350/700W``."""
    return re.sub(r"/[\d.]+", "", word)


def wait_for_line(screen: Screen, index: int, pattern: str) -> None:
    screen.wait(
        lambda it: re.search(pattern, gpu_line(it, index)) is not None,
        f"waiting for {pattern!r} on GPU {index}",
    )


def test_every_number_on_screen_is_the_drivers(driver: Driver) -> None:
    with screen_of(driver) as screen:
        for index in range(8):
            used, total = (index + 1) * 9.0, (driver.cards[index].memory_total or 0) / GIB
            wait_for_line(
                screen,
                index,
                rf" {used:.1f}/{total:.1f}G .* {10 * index + 3}% .* "
                rf"{40 + index} +{100 + 50 * index}/700W",
            )
        driver.cards[5].memory_used = 20 * GIB
        driver.cards[5].utilization_gpu = 0
        driver.cards[5].temperature = 33
        wait_for_line(screen, 5, r" 20\.0/.* 0% .* 33 ")
        assert "570.124.06" in screen.rows()[0]


@pytest.mark.slow
def test_what_the_dashboard_does_not_show_is_asked_for_at_every_sample_by_a_log_only(
    driver: Driver, tmp_path: Path
) -> None:
    def calls(function: str) -> int:
        return driver.calls()[function].calls if function in driver.calls() else 0

    def share(screen: Screen) -> float:
        """Questions about fields, of which one moves fast and is not shown, to a sample."""
        fields, samples = calls("nvmlDeviceGetFieldValues"), calls("nvmlDeviceGetPowerUsage")
        enough = samples + 20 * len(driver.cards)
        screen.wait(lambda _: calls("nvmlDeviceGetPowerUsage") >= enough, "twenty samples more")
        return (calls("nvmlDeviceGetFieldValues") - fields) / (enough - samples)

    env = {**driver.env(), "PYTHONPATH": str(Path.cwd())}
    with Screen([*GPUMON, "-n", "0.1"], env, 120, 30, cwd=tmp_path) as screen:
        wait_for_line(screen, 7, r"73%")
        assert share(screen) < 0.8
        screen.press("L", "logging to ")
        assert share(screen) > 0.9


def test_live_processes_are_shown_with_their_owners_and_go_when_they_end(driver: Driver) -> None:
    with owners(3, ["python", "train.py", "--lr", "3e-4"]) as started, screen_of(driver) as screen:
        pids = [process.pid for process in started]
        driver.cards[2].processes = [Owner(pids[0], memory=5 * GIB, sm=7)]
        driver.cards[3].processes = [Owner(pids[1], memory=GIB), Owner(pids[2], memory=2 * GIB)]
        driver.cards[4].processes = [Owner(pids[1], memory=GIB)]
        screen.wait_for(rf"  2 +{pids[0]} {ME} .* 5\.0G +7 ")
        screen.wait_for(rf"3,4 +{pids[1]} {ME} .* 2\.0G .*python train\.py --lr 3e-4")
        screen.wait_for(rf"  3 +{pids[2]} ")
        driver.cards[3].processes = [Owner(pids[1], memory=GIB)]
        screen.wait_gone(rf" {pids[2]} ")


def test_a_hundred_real_processes_on_eight_cards_are_all_in_the_table(driver: Driver) -> None:
    with owners(100, ["python", "work.py"]) as started, screen_of(driver, lines=150) as screen:
        pids = {process.pid for process in started}
        settle(driver, sorted(pids))
        screen.wait_for("100 processes")

        def all_there(it: Screen) -> bool:
            shown = {
                int(found) for found in re.findall(r"^ +[\d,]+ +(\d+) ", it.text(), re.MULTILINE)
            }
            return pids <= shown

        screen.wait(all_there, "waiting for every PID")


def test_a_number_that_matches_nobody_keeps_its_row(driver: Driver) -> None:
    driver.cards[0].processes = [Owner(3_999_999, memory=3 * GIB)]
    # Only where this can be a number of this machine's own it means that such a process ended.
    ended = ProcessReader().has_ended(3_999_999)
    said = "has ended; the driver still lists it" if ended else "not visible here"
    with screen_of(driver) as screen:
        screen.wait_for(rf" 3999999 – .* 3\.0G .*\({said}\)")


def test_a_lost_card_is_one_card(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 6, "63%")
        driver.cards[6].xid(79)
        driver.cards[6].lost = True
        wait_for_line(screen, 6, r"✖ LOST since \d\d:\d\d( \(XID 79\))?")
        assert "63%" not in gpu_line(screen, 6)
        driver.cards[7].utilization_gpu = 99
        wait_for_line(screen, 7, "99%")


@pytest.mark.slow
@NEEDS_ALL_PIDS
def test_a_hung_card_turns_the_clock_and_the_keys_stay_alive(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 3, "33%")
        driver.cards[3].hang("nvmlDeviceGetTemperature")
        driver.cards[3].hang("nvmlDeviceGetUtilizationRates")
        screen.wait_for(r"GPU 3: no answer for \d+ s")
        wait_for_line(screen, 3, r"✖ no answer")
        # The others are read on, by another thread.
        driver.cards[5].utilization_gpu = 77
        wait_for_line(screen, 5, r"▲ 54G unattr.* 77% ")
        driver.cards[2].utilization_gpu = 78
        wait_for_line(screen, 2, r"▲ 27G unattr.* 78% ")
        screen.press("?", "type to search keys")
        screen.press("q", r"GPU 3: no answer for \d+ s")
        driver.cards[3].release()
        screen.wait_gone("no answer")
        driver.cards[3].hang(None)
        screen.wait_for("no answer for")
        screen.quit()


@pytest.mark.slow
def test_a_driver_that_says_unknown_now_and_then_makes_nothing_up(driver: Driver) -> None:
    seen = 0
    # More than once, so that a streak of bad luck is not all there is.
    seeds, percents = (7, 8, 9), range(77, 89)
    driver.random_unknown(0.0)
    with screen_of(driver) as screen:
        wait_for_line(screen, 7, "73%")
        usual = [words_of(gpu_line(screen, index)) for index in range(7)]
        for seed in seeds:
            driver.random_unknown(0.3, seed=seed)
            for percent in percents:
                driver.cards[7].utilization_gpu = percent
                wait_for_line(screen, 7, f"{percent}%")
                for index, words in enumerate(usual):
                    now = words_of(gpu_line(screen, index))
                    assert len(now) == len(words)
                    assert [
                        (word, was)
                        for word, was in zip(now, words, strict=True)
                        if word not in (was, "–", without_limit(was))
                    ] == []
                    seen += now == words
            driver.random_unknown(0.0)
            screen.wait(
                lambda it: [words_of(gpu_line(it, index)) for index in range(7)] == usual,
                "waiting for all values",
            )
    # Three in a row are needed for a value to be given up.
    assert seen > 7 * len(percents) * len(seeds) / 2


def test_a_driver_that_goes_is_said_to_be_gone_and_is_back_by_itself(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 1, "13%")
        driver.unload()
        screen.wait_for("driver is not loaded")
        driver.reload()
        wait_for_line(screen, 1, "13%")


def test_cards_come_and_go(driver: Driver) -> None:
    with screen_of(driver) as screen:
        wait_for_line(screen, 7, "73%")
        driver.remove_card(7)
        screen.wait(lambda it: not gpu_line(it, 7), "waiting for GPU 7 to go")
        driver.add_card(rtx4090())
        screen.wait(lambda it: "RTX" in gpu_line(it, 7), "waiting for the new GPU")


def test_names_with_escape_sequences_are_only_text(driver: Driver) -> None:
    driver.cards[0].name = b"NVIDIA \x1b[31;1mH100\x1b]0;owned\x07 \xff\xfe"
    name = ["python\x1b[2J\x1b[H", "\u202etrain.py", "[red]x[/red]", "名前"]
    with owners(1, name) as started, screen_of(driver, columns=160) as screen:
        driver.cards[0].processes = [Owner(started[0].pid, memory=GIB)]
        screen.wait_for(r"python\ufffd\[2J\ufffd\[H \ufffdtrain\.py \[red\]x\[/red\] 名前|名 前")
        assert b"\x1b]0;owned" not in screen.output
        assert b"\x1b[2J\x1b[H" not in screen.output
        assert screen.rows()[0].startswith(" gpumon")


def test_process_memory_the_driver_will_not_tell_is_unknown_and_not_zero(driver: Driver) -> None:
    with owners(1, ["python", "x.py"]) as started, screen_of(driver) as screen:
        driver.cards[0].processes = [Owner(started[0].pid, memory=None)]
        screen.wait_for(rf" {started[0].pid} {ME} +– ")


def test_a_process_list_that_grows_while_it_is_read_is_read_all_the_same(driver: Driver) -> None:
    with owners(1, ["python", "x.py"]) as started, screen_of(driver) as screen:
        wait_for_line(screen, 1, "13%")
        growing, still = driver.cards[:2]
        lists = "nvmlDeviceGetComputeRunningProcesses_v3"
        growing.reset_counters()
        still.reset_counters()
        growing.grow_processes(100)
        # The first query finds it as it was.
        screen.wait(lambda _: growing.times(lists) > 1, "waiting for the list to be long")
        growing.processes = [Owner(started[0].pid, memory=GIB)]
        screen.wait_for(rf" {started[0].pid} {ME} +1\.0G")
        # In one look, by larger and larger buffers, and not in as many looks.
        assert growing.times(lists) > still.times(lists) + 1


def test_mig_instances_are_nested_and_a_parents_utilisation_is_unknown() -> None:
    with Driver([h100_mig(), h100()]) as driver, screen_of(driver) as screen:
        screen.wait_for(r"└ MIG 0:0 [^\n]*\dg\.\d+gb")
        assert "%" not in gpu_line(screen, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "without",
    [
        ["nvmlDeviceGetMemoryInfo_v2"],
        ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"],
        ["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"],
        ["nvmlDeviceGetFieldValues", "nvmlDeviceGetProcessUtilization"],
    ],
)
def test_old_drivers_that_lack_functions_are_read_by_older_ones(without: list[str]) -> None:
    with owners(1, ["python", "x.py"]) as started, Driver([h100()], without=without) as driver:
        card = driver.cards[0]
        card.memory_used, card.utilization_gpu, card.temperature = 9 * GIB, 42, 51
        card.processes = [Owner(started[0].pid, memory=GIB)]
        done = run_program([*GPUMON, "snapshot", "--format", "json"], driver.env(), check=True)
        shown = json.loads(done.stdout)
        assert shown["gpus"][0]["utilization_gpu_percent"] == 42
        assert shown["gpus"][0]["temperature_gpu_celsius"] == 51
        assert shown["gpus"][0]["memory_total_bytes"] > 79 * GIB
        assert [process["pid"] for process in shown["processes"]] == [started[0].pid]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"), [(9, "driver is not loaded"), (18, "upgraded"), (4, "no permission")]
)
@pytest.mark.parametrize("command", [[], ["snapshot"]])
def test_a_driver_that_cannot_be_used_is_one_clear_sentence(
    driver: Driver, code: int, words: str, command: list[str]
) -> None:
    driver.fail_init(code)
    with Screen([*GPUMON, *command], driver.env()) as screen:
        assert screen.wait_end() == 1
        text = " ".join(screen.text().split())
        assert re.search(words, text)
        assert "gpumon --demo" in text
        assert "Traceback" not in text
        assert screen.attributes() == screen.attributes_before


def test_only_the_chosen_cards_and_the_chosen_user_are_shown(driver: Driver) -> None:
    with owners(1, ["python", "x.py"]) as started:
        driver.cards[2].processes = [Owner(started[0].pid, memory=GIB)]
        with screen_of(driver, "--gpus", "2,4-5", "--user", OWNER) as screen:
            screen.wait_for(rf"1 process · of {OWNER}")
            wait_for_line(screen, 5, "53%")
            screen.wait(
                lambda it: [index for index in range(8) if gpu_line(it, index)] == [2, 4, 5],
                "waiting for the chosen GPUs alone",
            )
        with screen_of(driver, "--gpus", "2", "--user", STRANGER) as screen:
            screen.wait_for(rf"0 of 1 process · of {STRANGER}")
        with screen_of(driver, "--gpus", "11") as screen:
            assert screen.wait_end() == 1
            assert "0" in screen.text()
