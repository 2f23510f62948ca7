"""What the screen says of its log: where it is, and what a replayed one has not told yet."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from gpumon.makers.demo import DemoSource
from gpumon.recording.csv.files import default_name
from gpumon.sampling.collector import Collector
from gpumon.ui.session import Logbook
from gpumon.ui.view.header_footer import footer_row
from gpumon.ui.viewed_time import ViewedTime
from tests.build import NOON, snapshot
from tests.clock import ThreadedClock
from tests.known import known
from tests.recordings import ListTape
from tests.screen import PATIENCE


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, an empty one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def logbook() -> Iterator[Logbook]:
    logbook = Logbook(Collector(DemoSource()), "run.csv")
    yield logbook
    logbook.close()


def note_of(logbook: Logbook) -> str:
    return known(logbook.note).text


def shown(message: str) -> str:
    return "".join(text for text, _ in footer_row((), message, 80)).strip()


def test_a_file_name_of_usual_length_is_complete_at_80_columns() -> None:
    name = default_name("gpu-node-07", NOON)
    logbook = Logbook(Collector(DemoSource()), name)
    assert shown(logbook.toggle()) == f"logging to {name}; L stops"
    assert shown(logbook.toggle()) == f"logged to {name}: 0 samples in 0s, 2K"
    [summary] = logbook.close()
    assert summary.endswith(f"gpumon replay {name}")


def test_a_log_of_a_length_of_time_ends_by_itself(logbook: Logbook) -> None:
    ended = SimpleQueue[str]()
    assert shown(logbook.log_for(28800, ended.put)) == "logging to run.csv for 8h00m; L stops"
    assert note_of(logbook).endswith(" 0s, 8h00m left")
    # Of a log that is written already it changes the end.
    assert shown(logbook.log_for(0.05, ended.put)) == "logging to run.csv for 0s; L stops"
    assert shown(ended.get(timeout=PATIENCE)) == "logged to run.csv: 0 samples in 0s, 2K"
    assert logbook.note is None
    assert len(logbook.close()) == 1


def test_the_time_left_of_a_running_log_counts_from_the_key(logbook: Logbook) -> None:
    logbook.toggle()
    time.sleep(1.1)
    logbook.log_for(1800, SimpleQueue[str]().put)
    assert note_of(logbook).endswith(" 1s, 30m left")


def test_a_stopped_log_does_not_end_the_next_one(logbook: Logbook) -> None:
    ended = SimpleQueue[str]()
    logbook.log_for(0.3, ended.put)
    logbook.toggle()
    logbook.toggle()
    time.sleep(0.5)
    assert ended.empty()
    assert "left" not in note_of(logbook)


def test_one_sample_is_one_sample() -> None:
    clock = ThreadedClock()
    collector = Collector(DemoSource(), clock=clock)
    logbook = Logbook(collector, "run.csv")
    logbook.toggle()
    clock.start(collector)
    assert "run.csv: 1 sample in " in shown(logbook.toggle())
    collector.stop()


@pytest.mark.parametrize("named", ["", "run.csv"])
def test_the_folder_is_named_unless_it_is_the_working_directory(folder: Path, named: str) -> None:
    (folder / "logs").mkdir()
    logbook = Logbook(Collector(DemoSource()), os.path.join("logs", named))
    begun = logbook.toggle()
    name = named or default_name(DemoSource().hostname, NOON)[:-19]
    assert begun.startswith(f"logging to {name}")
    assert begun.endswith(f".csv in {folder}/logs; L stops")
    assert f" in {folder}/logs: 0 samples" in logbook.toggle()
    [summary] = logbook.close()
    assert f"gpumon replay logs/{name}" in summary


@pytest.mark.parametrize(("direction", "where"), [(1, "after"), (-1, "before")])
@pytest.mark.parametrize("complete", [True, False])
def test_no_event_is_qualified_while_the_log_is_still_searched(
    direction: int, where: str, complete: bool
) -> None:
    tape = ListTape([snapshot(NOON)])
    source = SimpleNamespace(
        to_event=lambda *, forward, **_: tape.next_event(NOON, forward=forward)
    )
    player = SimpleNamespace(source=source)
    recording = SimpleNamespace(events_complete=complete)
    session: Any = SimpleNamespace(player=player, recording=recording)

    message = ViewedTime(session, lambda: None).go_to_event(direction)

    known = f"no event is known {where} this moment"
    yet = "" if complete else ": the log has not been searched completely yet"
    assert message == known + yet
