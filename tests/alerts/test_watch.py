"""``gpumon watch`` and ``gpumon alert`` from the driver to what they reach."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpumon.alerts.engine import AlertEngine
from gpumon.alerts.watch import begun_history
from gpumon.model.snapshot import Snapshot
from gpumon.model.thresholds import DEFAULTS
from gpumon.model.time_shift import TimeShift
from gpumon.recording.archive import FoundArchive, find_archive
from tests.absent import ABSENT
from tests.alerts.machine import alert
from tests.alerts.watching import Hook, http_server, wait_samples, watching, write_alerts
from tests.command import GPUMON, run_program
from tests.driver import Driver, h100
from tests.exporter.exporting import wait_until
from tests.recording.archive.archives import archived, demo_samples

UTIL = {"when": "util>90", "name": "busy"}


def gpumon(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    places = {"XDG_CONFIG_HOME": str(folder), "XDG_STATE_HOME": str(folder)}
    return run_program([*GPUMON, *arguments], places)


@pytest.mark.slow
def test_three_alerts_reach_all_channels_once_under_flapping_and_a_restart(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    with http_server() as (url, posts), Driver([h100(), h100()]) as driver:
        channels = [{"webhook": f"{url}/alert", "headers": {"X-Token": "secret"}}, hook.channel]
        alerts = [
            {**table, "do": channels}
            for table in (UTIL, {"when": "xid critical"}, {"when": "lost gpu:1"})
        ]
        write_alerts(tmp_path, *alerts)

        def reached(*alerts: str) -> bool:
            by_hook = sorted(str(notice["alert"]) for notice in hook.notices)
            # An answer that comes too late on a busy machine is sent again, with the same id.
            bodies = [json.loads(post.body) for post in list(posts)]
            by_server = sorted({body["id"]: body["alert"] for body in bodies}.values())
            assert len(by_hook) <= len(alerts)
            assert len(by_server) <= len(alerts)
            return by_hook == by_server == sorted(alerts)

        with watching(driver, tmp_path) as watch:
            wait_samples(driver)
            for _ in range(5):
                driver.cards[0].utilization_gpu = 99
                wait_samples(driver)
                driver.cards[0].utilization_gpu = 3
                wait_samples(driver)
            driver.cards[1].xid(79)
            driver.cards[1].lost = True
            titles = ("GPU 0: busy", "GPU 1: XID 79", "GPU 1: lost")
            watch.wait_lines(*titles)
            wait_until(lambda: reached("busy", "xid critical", "lost gpu:1"), "the hooks")
            driver.cards[0].utilization_gpu = 99
            wait_samples(driver)
            watch.wait_lines(*titles)
            assert watch.end() == 0
        assert posts[0].path == "/alert"
        assert posts[0].headers["X-Token"] == "secret"
        write_alerts(tmp_path, *alerts, {"when": "temp>80", "do": channels})
        with watching(driver, tmp_path, "again") as watch:
            wait_samples(driver)
            driver.cards[0].temperature = 95
            watch.wait_lines("GPU 0: temp>80")
            wait_until(lambda: reached("busy", "xid critical", "lost gpu:1", "temp>80"), "it")


def test_after_kill_9_nothing_is_reported_twice(tmp_path: Path) -> None:
    write_alerts(tmp_path, UTIL, {"when": "temp>80"})
    with Driver([h100()]) as driver:
        with watching(driver, tmp_path) as watch:
            wait_samples(driver)
            driver.cards[0].utilization_gpu = 99
            watch.wait_lines("GPU 0: busy")
            states = tmp_path / "gpumon"
            wait_until(
                lambda: any('"told"' in path.read_text() for path in states.glob("alerts-*.json")),
                "that it is remembered",
            )
            watch.process.kill()
            watch.process.wait()
        with watching(driver, tmp_path, "again") as watch:
            wait_samples(driver)
            driver.cards[0].temperature = 95
            watch.wait_lines("GPU 0: temp>80")


def test_a_command_that_hangs_delays_no_sample_and_no_other_alert(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    hang = {"command": [sys.executable, "-c", "import time; time.sleep(1000)"]}
    with Driver([h100(), h100()]) as driver:
        write_alerts(tmp_path, {**UTIL, "do": [hang]}, {"when": "temp>80", "do": [hook.channel]})
        with watching(driver, tmp_path) as watch:
            wait_samples(driver)
            driver.cards[0].utilization_gpu = 99
            watch.wait_lines("GPU 0: busy")
            wait_samples(driver, 20)
            driver.cards[0].temperature = 95
            watch.wait_lines("GPU 0: busy", "GPU 0: temp>80")
            wait_until(lambda: len(hook.notices) == 1, "the other command")


def test_the_end_of_a_process_is_reported(tmp_path: Path) -> None:
    from tests.driver import Owner, owners

    with Driver([h100()]) as driver, owners(1, ["python", "train.py"]) as (started,):
        write_alerts(tmp_path, {"when": f"ends {started.pid}"})
        driver.cards[0].processes = [Owner(started.pid, memory=2**30)]
        with watching(driver, tmp_path) as watch:
            wait_samples(driver, 20)
            driver.cards[0].processes = []
            wait_until(lambda: watch.lines, "the end")
            assert f" {started.pid} of " in watch.lines[0]
            assert ": ended | " in watch.lines[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_signal_ends_it_in_good_order(number: signal.Signals, tmp_path: Path) -> None:
    write_alerts(tmp_path, UTIL)
    with Driver([h100()]) as driver, watching(driver, tmp_path) as watch:
        wait_samples(driver)
        assert watch.end(number) == 0
        assert watch.stderr.count("\n") == 1
        assert "watching " in watch.stderr
        assert "for 1 alert: busy" in watch.stderr


def test_it_waits_for_a_driver_and_reports_what_comes_then(tmp_path: Path) -> None:
    write_alerts(tmp_path, UTIL)
    with Driver([h100()]) as driver:
        driver.fail_init(9)
        with watching(driver, tmp_path) as watch:
            watch.wait_stderr("Trying again")
            driver.fail_init(0)
            watch.wait_stderr("sampling continues")
            driver.cards[0].utilization_gpu = 99
            watch.wait_lines("GPU 0: busy")


def test_it_ends_while_the_driver_hangs(tmp_path: Path) -> None:
    write_alerts(tmp_path, UTIL)
    with Driver([h100()]) as driver, watching(driver, tmp_path) as watch:
        wait_samples(driver)
        driver.cards[0].hang()
        assert watch.end() == 0


def test_without_alerts_it_says_how_to_make_one(tmp_path: Path) -> None:
    done = gpumon("watch", "--demo", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"gpumon: there is no alert in {tmp_path}/gpumon/config.toml: write a table [[alerts]] "
        'with a line such as when = "hot" into it; docs/alerts.md has examples.\n'
    )


@pytest.mark.parametrize("words", [["watch", "--demo"], ["alert", "list"]], ids=" ".join)
def test_of_a_file_that_cannot_be_read_only_that_is_said(words: list[str], tmp_path: Path) -> None:
    done = gpumon(*words, "--alerts", "/dev/null", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2 if words[0] == "watch" else 1, "")
    assert done.stderr == "gpumon: /dev/null: it is not a regular file.\n"


def test_a_file_with_a_mistake_and_no_alert_is_said_to_have_none(tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text("intervall = 1\n", encoding="utf-8")
    done = gpumon("watch", "--demo", "--alerts", str(other), folder=tmp_path)
    assert done.returncode == 2
    mistake, none = done.stderr.splitlines()
    assert "other.toml, line 1: unknown table or key intervall" in mistake
    assert none.startswith(f"gpumon: there is no alert in {other}: write a table [[alerts]]")


def test_bell_and_desktop_are_refused_where_there_is_no_terminal(tmp_path: Path) -> None:
    write_alerts(tmp_path, {**UTIL, "do": ["bell", "desktop"]})
    with Driver([h100()]) as driver, watching(driver, tmp_path) as watch:
        assert "config.toml, line 4: 'bell' needs a terminal, and gpumon watch has" in watch.stderr
        wait_samples(driver)
        driver.cards[0].utilization_gpu = 99
        watch.wait_lines("GPU 0: busy")


def test_another_file_may_have_the_alerts(tmp_path: Path) -> None:
    write_alerts(tmp_path, {"when": "hot"})
    other = tmp_path / "other.toml"
    other.write_text('alert = 1\n[[alerts]]\nwhen = "lost"\n', encoding="utf-8")
    done = gpumon("alert", "list", "--alerts", str(other), folder=tmp_path)
    assert done.stdout == "lost: when lost, again after 6h00m: only listed\n"
    assert "other.toml, line 1: unknown table or key alert (did you mean alerts?)" in done.stderr


@pytest.mark.slow
def test_a_test_prints_the_result_of_each_channel(tmp_path: Path) -> None:
    hook = Hook(tmp_path)
    with http_server() as (url, posts):
        good = [hook.channel, {"webhook": url}]
        broken = {"command": [f"{ABSENT}/program"]}
        write_alerts(tmp_path, {**UTIL, "do": good}, {"when": "hot", "do": [broken, *good]})
        done = gpumon("alert", "test", "busy", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == (
            f"command {sys.executable}: sent\nwebhook 127.0.0.1 (gpumon): sent\n"
        )
        assert [notice["test"] for notice in hook.notices] == [True]
        assert json.loads(posts[0].body)["test"] is True
        failed = gpumon("alert", "test", "hot", folder=tmp_path)
        assert failed.returncode == 1
        first, *others = failed.stdout.splitlines()
        assert first.startswith(f"command {ABSENT}/program: failed: ")
        assert [line.rpartition(": ")[2] for line in others] == ["sent", "sent"]
        wrong = gpumon("alert", "test", "bussy", folder=tmp_path)
        assert wrong.returncode == 2
        assert wrong.stderr == ("gpumon: there is no alert 'bussy'; the nearest is 'busy'.\n")


# A state that began before the start, as the history of the machine knows it


BEFORE = 170
"""Samples before the restart, one in ten seconds."""


@pytest.fixture(scope="module")
def samples() -> Sequence[Snapshot]:
    """Samples of the demo, of which the last one before the restart is of now."""
    taken = demo_samples(BEFORE + 40, step=10.0)
    return [*map(TimeShift(time.time() - taken[BEFORE - 1].time).snapshot, taken)]


def restarted(folder: Path, samples: Sequence[Snapshot]) -> tuple[str, list[tuple[float, str]]]:
    """What is said after the restart: the folder of the history; seconds and texts of notices."""

    def find() -> FoundArchive:
        return find_archive("ada-07", str(folder))

    history, known_from = begun_history(DEFAULTS, find)
    engine = AlertEngine([alert("idle>30m gpu:3")], DEFAULTS)
    said = []
    for sample in samples[BEFORE:]:
        history.add(sample)
        for _, notice in engine.check(history, sample):
            said.append((sample.time - samples[0].time, notice.sentence))
    return known_from, said


def test_a_state_goes_on_after_a_restart(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    folder = archived(tmp_path / "history", samples[:BEFORE])
    known_from, said = restarted(folder, samples)
    assert known_from == str(folder)
    # Two processes on the GPU have been idle since the first sample.
    assert [seconds for seconds, _ in said] == [pytest.approx(1800, abs=30)] * 2
    assert all("30m" in sentence for _, sentence in said)


def test_a_history_that_ended_says_nothing(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    earlier = TimeShift(-600).snapshot
    folder = archived(tmp_path / "history", map(earlier, samples[:BEFORE]))
    assert restarted(folder, samples) == ("", [])


@pytest.mark.parametrize(("interval", "is_used"), [(1.0, False), (60.0, True), (1e9, True)])
def test_it_goes_on_by_the_pace_of_the_history(
    tmp_path: Path, samples: Sequence[Snapshot], interval: float, is_used: bool
) -> None:
    earlier = TimeShift(-100).snapshot
    before = [earlier(sample) for sample in samples[12:BEFORE:6]]
    folder = archived(tmp_path / "history", before, interval=interval)
    known_from, said = restarted(folder, samples)
    assert bool(known_from) is is_used
    assert bool(said) is is_used


def test_without_a_history_it_counts_from_now(tmp_path: Path, samples: Sequence[Snapshot]) -> None:
    assert restarted(tmp_path / "none", samples) == ("", [])
    assert begun_history(DEFAULTS, None)[1] == ""
