"""Cards of a maker that gpumon does not know go through everything unchanged.

``tests/third_backend.py`` is all that it takes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.screen import Screen
from tests.third_backend import FOLDER, PID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GPUMON = [sys.executable, "-m", "tests.third_backend"]


class Acme:
    """The machine: a process on card 0, and another that holds the file of card 1 unlisted."""

    def __init__(self, folder: Path, owner: int, holder: int) -> None:
        self.owner, self.holder = owner, holder
        self.env = {
            **os.environ,
            PID: str(owner),
            FOLDER: str(folder),
            "GPUMON_LOCK_DIR": str(folder / "locks"),
        }

    def printed(self, *arguments: str) -> str:
        done = subprocess.run(
            [*GPUMON, *arguments], env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def acme(tmp_path: Path) -> Iterator[Acme]:
    card = tmp_path / "render129"
    card.touch()
    with card.open() as file:
        holder = subprocess.Popen(["sleep", "601"], stdin=file)
    with subprocess.Popen(["sleep", "600"]) as owner, holder:
        try:
            yield Acme(tmp_path, owner.pid, holder.pid)
        finally:
            owner.kill()
            holder.kill()


def test_a_snapshot_joins_its_cards_with_the_processes_of_the_machine(acme: Acme) -> None:
    told = json.loads(acme.printed("snapshot", "--format", "json"))
    assert told["source"] == "acme"
    assert told["host"]["driver_version"] == "7.1"
    assert [card["name"] for card in told["gpus"]] == ["ACME Rocket", "ACME Rocket"]
    (process,) = told["processes"]
    assert (process["pid"], process["name"]) == (acme.owner, "sleep")
    assert process["command"] == ["sleep", "600"]
    assert [one["pid"] for one in told["holders"]["suspects"]] == [acme.holder]


def test_it_is_exported_and_chosen_like_any_other(acme: Acme) -> None:
    assert "ACME Rocket" in acme.printed("snapshot", "--format", "csv")
    assert 'UUID="ACME-1"' in acme.printed("snapshot", "--format", "prometheus")
    assert acme.printed("select", "--free", "10G") == "ACME-1\n"


def test_it_is_logged_reported_and_played(acme: Acme, tmp_path: Path) -> None:
    log = str(tmp_path / "acme.csv")
    acme.printed("log", log, "-n", "0.1", "--for", "1.5s")
    told = json.loads(acme.printed("report", log, "--by", "gpu", "--format", "json"))
    assert "ACME-0" in json.dumps(told)
    with Screen([*GPUMON, "replay", log], acme.env, 120, 30) as screen:
        screen.wait_for("REPLAY")
        screen.wait_for("ACME Rocket")
        screen.type("q")
        assert screen.wait_end() == 0


def test_the_screen_shows_its_cards_their_users_and_their_pages(acme: Acme) -> None:
    with Screen([*GPUMON, "-n", "0.2"], acme.env, 120, 100) as screen:
        screen.wait_for("ACME Rocket")
        screen.wait_for(str(acme.owner))
        screen.wait_for("93%")
        assert "ACME" not in screen.rows()[0], "it is no demo"
        screen.type("\t\r")
        screen.wait_for("ACME-0")
        screen.type("\x1b")
        screen.wait(lambda it: "gpumon" in it.rows()[0], "waiting for the dashboard")
        screen.type("q")
        assert screen.wait_end() == 0
