"""The manual pages say what ``--help`` says, and man can show them."""

from __future__ import annotations

import re

import pytest

from gpumon.cli.commands import COMMANDS
from tests.command import run_program
from tests.lives import needs
from tests.packages.man_pages import FOLDER, pages

PAGES = sorted(path.name for path in FOLDER.iterdir())
COLUMNS = 80


def test_they_are_what_the_command_line_says_now() -> None:
    made = pages()
    written = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()}
    assert written.keys() == made.keys()
    stale = [name for name, text in made.items() if written[name] != text]
    assert stale == [], "python -m tests.packages.man_pages writes them"


def test_every_command_has_a_page() -> None:
    assert set(PAGES) == {"gpumon.1", *(f"gpumon-{name}.1" for name in COMMANDS)}


@needs("mandoc")
@pytest.mark.parametrize("page", PAGES)
def test_mandoc_finds_nothing_to_better(page: str) -> None:
    done = run_program(["mandoc", "-T", "lint", FOLDER / page])
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.slow
@needs("groff")
@pytest.mark.parametrize("page", PAGES)
def test_groff_warns_of_nothing_and_no_line_is_cut(page: str) -> None:
    shown = run_program(
        ["groff", "-ww", "-man", "-Tutf8", "-P-c", f"-rLL={COLUMNS}n", FOLDER / page], check=True
    )
    assert shown.stderr == ""
    # What is bold or underlined is written over itself.
    lines = re.sub(".\b", "", shown.stdout).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= COLUMNS


@needs("groff")
def test_what_looks_like_a_request_of_roff_is_shown() -> None:
    shown = run_program(
        ["groff", "-man", "-Tutf8", "-P-c", f"-rLL={COLUMNS}n", FOLDER / "gpumon.1"], check=True
    ).stdout
    text = " ".join(re.sub(".\b", "", shown).split())
    assert "such as 'user:ann mem>10G !idle>1h'; the help page" in text
    assert "export CUDA_VISIBLE_DEVICES=$(gpumon select)" in text
    assert "[ Back in time by a sample." in text
    assert ">, . Sort by the next column." in text
    assert "~/.config/gpumon/config.toml" in text
