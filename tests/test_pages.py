"""What the pages promise: all is on a page, examples can be typed, links lead on."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from gpumon.alerts.when import STATES
from gpumon.cli.commands import COMMANDS
from gpumon.cli.parser import make_parser
from gpumon.config.columns import COLUMN, GPU_COLUMN
from gpumon.config.keymap import KEYMAP, display
from gpumon.config.settings import VARIABLES
from gpumon.config.table import SETTINGS
from gpumon.findings.finding import FindingKind
from gpumon.findings.registry import RULES

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]
LONGEST_README = 130
LINES_BEFORE_AN_EXAMPLE = 15

_FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:^ {4}.*\n)+", re.MULTILINE)
_COMMAND = re.compile(r"\$\((gpumon [^)]*)|(?:^|&& |\| |; |nohup |ssh \S+ |sudo )(gpumon(?: .*|$))")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def code_blocks(text: str) -> list[str]:
    fenced = [block for kind, block in _FENCE.findall(text) if kind in {"", "sh", "console"}]
    return [*fenced, *_INDENTED.findall(_FENCE.sub("", text))]


def commands_of(text: str) -> Iterator[str]:
    """The commands of gpumon among the examples, without what is explained beside them."""
    for line in chain.from_iterable(map(typed_lines, code_blocks(text))):
        # Two blanks or more stand before an explanation.
        command = re.split(r" {2,}", line)[0]
        if (found := _COMMAND.search(command)) is not None and "…" not in command:
            yield found[1] or found[2]


def typed_lines(block: str) -> list[str]:
    """The lines of an example, without those that a program prints after a ``$``."""
    lines = [line.strip() for line in block.splitlines()]
    prompted = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return prompted or lines


def arguments_of(command: str) -> list[str]:
    """The words after ``gpumon``, up to the end of the command in a shell line."""
    # A variable of the shell stands for a number, such as that of a job.
    lexer = shlex.shlex(re.sub(r"\$\w+", "1", command), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)[1:]
    ends = [at for at, word in enumerate(words) if set(word) <= set("|&;()<>")]
    return words[: ends[0]] if ends else words


def can_be_read(command: str) -> bool:
    try:
        make_parser().parse_args(arguments_of(command))
    except SystemExit as done:
        # Help and versions end with status 0.
        return done.code == 0
    return True


def anchors_of(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    plain = [re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in plain}


def test_the_readme_is_short() -> None:
    assert len(text_of(ROOT / "README.md").splitlines()) <= LONGEST_README


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    assert [line for line in commands_of(text_of(page)) if not can_be_read(line)] == []


def test_the_commands_of_the_pages_are_found() -> None:
    found = {page.name: list(commands_of(text_of(page))) for page in PAGES}
    assert len(found["README.md"]) >= 8
    assert "gpumon select" in found["select.md"]
    assert sum(map(len, found.values())) > 80


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_every_page_begins_with_an_example(page: Path) -> None:
    first = "\n".join(text_of(page).splitlines()[:LINES_BEFORE_AN_EXAMPLE])
    assert re.search(r"^ *```|^ {4}\S", first, re.MULTILINE)


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {target.partition("#")[0] for target in _LINK.findall(text_of(index))}
    assert {page.name for page in DOCS} - {"index.md"} <= linked
    assert "(docs/index.md)" in text_of(ROOT / "README.md")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_every_link_into_a_page_finds_its_heading(page: Path) -> None:
    for target in _LINK.findall(text_of(page)):
        path, sign, anchor = target.partition("#")
        if sign and "://" not in path:
            there = page.parent / path if path else page
            assert anchor in anchors_of(text_of(there)), target


def test_every_command_is_on_a_page() -> None:
    everything = "\n".join(map(text_of, PAGES))
    assert [name for name in COMMANDS if f"gpumon {name}" not in everything] == []


def test_every_key_is_on_the_page_of_the_dashboard_and_of_the_configuration() -> None:
    config, dashboard = (text_of(ROOT / "docs" / name) for name in ("config.md", "dashboard.md"))
    changeable = [action for action in KEYMAP if action.name and not action.fixed]
    assert [action.name for action in changeable if f"`{action.name}`" not in config] == []
    missing = [
        action.name
        for action in changeable
        if "dashboard" in action.on and not action.name.startswith("sort_")
        if not any(f"`{display([key])}`" in dashboard for key in action.keys)
    ]
    assert missing == []


@pytest.mark.parametrize("name", [*SETTINGS, *VARIABLES, *COLUMN, *GPU_COLUMN])
def test_every_setting_variable_and_column_is_on_the_page_of_the_configuration(name: str) -> None:
    assert f"`{name}`" in text_of(ROOT / "docs" / "config.md")


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.value)
def test_every_state_is_on_a_page_with_what_it_means(state: FindingKind) -> None:
    assert RULES[state].explanation.meaning in text_of(ROOT / "docs" / "alerts.md")
