"""Any value of TOML in any key is valid, or a sentence with the file, the line and the key."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from gpumon.alerts.alert import KEY_NAMES
from gpumon.config.keymap import ACTIONS
from gpumon.config.table import SETTINGS, TABLES
from gpumon.config.themes import ThemeError, ThemeLibrary
from gpumon.config.themes.files import COLOURS
from gpumon.config.themes.styles import DASHBOARD
from gpumon.config.toml_text import lines_of, toml, toml_key
from tests.command import run_here

ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TEXTS = st.one_of(
    st.text(),
    st.sampled_from(
        [
            *("~nosuchuser/t", "~", "/", "a\0b", "a\nb = 1", "\x9b2J", '"""', "'''", "# x"),
            *(
                "é" * 300,
                "hot",
                "idle>2h",
                "xid 79",
                "ends user:me",
                "for",
                "group:lab",
                "gpu-[01-",
            ),
            "x" * 1500,
            *("bell", "desktop", "https://[", "http://a:99999", "mailto://x", "json", "slack"),
            *("1e999", "9" * 400 + "d", "nan", "inf", "-1s", "#5aa9e6", "gpumon", "ctrl+c", " "),
        ]
    ),
)
LEAVES = st.one_of(
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 60, 1234567, 2**63, -(2**64), 10**400]),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.1, 1234567.5, 1e15, 1e300]),
    TEXTS,
    st.dates(),
    st.times(),
    st.datetimes(),
    st.datetimes(timezones=ZONES),
)
KEYS = st.one_of(
    TEXTS, st.sampled_from(["command", "webhook", "apprise", "headers", "Authorization", "when"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)

NESTED: Any = []
for _ in range(100):
    NESTED = [{"a": NESTED}]

THEME_KEYS = {
    "": ("about", "base", "colours", "dashboard", "unknown"),
    "colours": (*COLOURS, "unknown"),
    "dashboard": (*DASHBOARD, "unknown"),
}
CHANNELS = (
    *("{{ command = {} }}", "{{ command = [{}] }}", "{{ webhook = {} }}"),
    '{{ webhook = "https://x.example", format = {} }}',
    '{{ webhook = "https://x.example", headers = {} }}',
    '{{ webhook = "https://x.example", headers = {{ Authorization = {} }} }}',
    '{{ webhook = "https://x.example", header_files = {} }}',
    '{{ webhook = "https://x.example", header_files = {{ Authorization = {} }} }}',
    *('{{ webhook = "https://x.example", other = {} }}', "{{ apprise = {} }}", "{{ other = {} }}"),
    "[{}]",
)


class Row(NamedTuple):
    """A line of the file that has the value, and the key that a message must name."""

    number: int
    key: str


def same(first: object, second: object) -> bool:
    """Whether two values are equal, where not a number equals itself."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(same(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and isinstance(second, float) and math.isnan(first):
        return math.isnan(second)
    return first == second and isinstance(first, bool) is isinstance(second, bool)


def every_key(value: str) -> tuple[list[str], list[Row]]:
    """A file with this value in every key, and where."""
    lines: list[str] = []
    rows: list[Row] = []

    def add(key: str, text: str = value) -> None:
        lines.append(f"{key} = {text}")
        rows.append(Row(len(lines), key))

    for name in (name for name in SETTINGS if "." not in name):
        add(name)
    add("unknown")
    for table in TABLES:
        lines.append(f"[{table}]")
        for name in (name for name in SETTINGS if name.rpartition(".")[0] == table):
            add(name.rpartition(".")[2])
        for name in ACTIONS if table == "keys" else ():
            add(name)
        add("unknown")
    for name in (*KEY_NAMES, "unknown"):
        lines.append("[[alerts]]")
        lines.extend([] if name == "when" else ['when = "hot"'])
        lines.extend([] if name == "name" else [f'name = "{name}"'])
        add(name)
    for number, channel in enumerate(CHANNELS):
        lines.extend(["[[alerts]]", 'when = "hot"', f'name = "{number}"'])
        add("do", channel.format(value))
    return lines, rows


def invalid_lines(lines: list[str], path: Path) -> dict[int, str]:
    """What ``gpumon config check`` says of the lines of this file; it may say nothing else."""
    path.write_text("\n".join(lines), encoding="utf-8")
    check = run_here("config", "check")
    pattern = rf"^gpumon: {re.escape(str(path))}, line (\d+): (.*)$"
    said = re.findall(pattern, check.stderr, re.MULTILINE)
    assert len(said) == check.stderr.count("\n"), check.stderr
    assert check.returncode == bool(said)
    return {int(number): sentence for number, sentence in said}


def check_shown(lines: list[str], path: Path) -> None:
    """What is valid reads back as it is shown."""
    shown = run_here("config", "show")
    assert shown.returncode == 0
    given, effective = (msgspec.toml.decode(text) for text in ("\n".join(lines), shown.stdout))
    assert same(effective["alerts"], given["alerts"])
    path.write_text(shown.stdout, encoding="utf-8")
    again = run_here("config", "show").stdout
    assert [line.partition("  # ")[0] for line in again.splitlines()] == [
        line.partition("  # ")[0] for line in shown.stdout.splitlines()
    ]


FAILED_ONCE: tuple[object, ...] = (
    *(
        "~nosuchuser/t",
        date(2024, 1, 1),
        time(1, 2),
        datetime(2024, 1, 1, 1, 2),
        1234567,
        0.1234567,
    ),
    *(math.nan, math.inf, -0.0, 16**5000, {}, [], [[]], [{}], NESTED, {"a b": {"": date.min}}),
    *("a\0b", "\x9b2J", "a\nunits = 1", {"Authorization": "~nosuchuser/t"}, {"sort": {"x": 1}}),
)


def check_every_key(value: object) -> None:
    text = toml(value)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", folder)
        (path := Path(folder, "gpumon", "config.toml")).parent.mkdir()
        lines, rows = every_key(text)
        invalid = invalid_lines(lines, path)
        assert not invalid.keys() - {row.number for row in rows}
        assert all(row.key in invalid.get(row.number, row.key) for row in rows)
        check_shown(lines, path)
        for key in (*TABLES, "alerts"):
            assert invalid_lines([f"{key} = {text}"], path).keys() <= {1}


def check_theme(value: object) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder, "mine.toml")
        for table, keys in THEME_KEYS.items():
            lines = [f"{'' if table else '#'}[{table}]"]
            lines += [f"{key} = {toml(value)}" for key in keys]
            path.write_text("\n".join(lines), encoding="utf-8")
            sentences = theme_errors(path, folder)
            for sentence in sentences:
                if " is missing; " not in sentence and " is too long to be " not in sentence:
                    found = re.match(rf"{re.escape(str(path))}, line (\d+): ", sentence)
                    assert found is not None, sentence
                    key = keys[int(found[1]) - 2]
                    assert (f"{table}.{key}" if table else key) in sentence


def theme_errors(path: Path, folder: str) -> tuple[str, ...]:
    try:
        ThemeLibrary(own=folder).read_path(path)
    except ThemeError as error:
        return error.sentences
    return ()


def check_written(value: object) -> None:
    assert same(msgspec.toml.decode(f"x = {toml(value)}")["x"], value)


CHECKS = [check_every_key, check_theme, check_written]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_what_failed_once_is_valid_or_a_sentence(check: Callable[[object], None]) -> None:
    for value in FAILED_ONCE:
        check(value)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@settings(max_examples=20, deadline=None, phases=[Phase.generate])
@given(VALUES)
def test_any_value_of_any_key_is_valid_or_a_sentence(
    check: Callable[[object], None], value: object
) -> None:
    # A file with a longer value in every key would be too long.
    assume(len(toml(value)) < 5000)
    check(value)


def test_the_line_of_a_key_is_found_whatever_the_values_contain() -> None:
    text = '''\
# theme = 1
about = """
theme = 2
"""   # theme = 3
list = [
  "theme = 4", # ]
  """theme = 5
  """,
]
inline = { theme = "}", x = '"' }
"quo.ted" = 1
theme = 6
sort.column.x = 7
[ units ] # theme
"mem\\u006fry" = 'a'
[[alerts]]
when = "hot"
[[ "alerts" ]]
when = "full"
[alerts.headers]
a = 1
'''
    numbers = {
        "about": 2,
        "list": 5,
        "inline": 10,
        "quo.ted": 11,
        "theme": 12,
        "sort": 13,
        "sort.column": 13,
        "units": 14,
        "units.memory": 15,
        "alerts": 16,
        "alerts[0].when": 17,
        "alerts[1]": 18,
        "alerts[1].when": 19,
        "alerts[1].headers.a": 21,
    }
    lines = lines_of(text)
    assert {name: lines[name] for name in numbers} == numbers
    assert toml_key("a b") == '"a b"'
