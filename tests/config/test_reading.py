"""What a configuration comes to, good or bad, and what is said of it."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import platformdirs
import pytest

import gpumon
from gpumon.cli.config import effective, template
from gpumon.config import VARIABLES, Loaded, Settings, config_path, load
from gpumon.config.table import SETTINGS, settings_of, value_of
from gpumon.system.folders import state_folder
from tests.command import run_program
from tests.config.config_page import PAGE, with_tables

Written: TypeAlias = Callable[..., Loaded]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Reads a configuration with this text, and these variables."""

    def read(text: str | bytes | None = None, **variables: str) -> Loaded:
        path = tmp_path / "gpumon" / "config.toml"
        if text is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load({"XDG_CONFIG_HOME": str(tmp_path), **variables})

    return read


def said(loaded: Loaded) -> list[str]:
    """The complaints, the file by its name alone."""
    folder = loaded.path.removesuffix("config.toml")
    return [error.sentence.removeprefix(folder) for error in loaded.errors]


def test_without_a_file_and_variables_the_defaults_hold(written: Written) -> None:
    loaded = written(GPUMON_INTERVAL="")
    assert (loaded.settings, loaded.errors, loaded.brief) == (Settings(), (), "")


def test_without_a_file_and_variables_nothing_is_imported_for_them(tmp_path: Path) -> None:
    code = (
        "import sys, gpumon.model.thresholds\nfrom gpumon.config import load\nload()\n"
        "print(*(name for name in sys.modules if name.startswith('gpumon')))\n"
        "print(*{'tomllib', 'tomli', 'difflib', 'platformdirs', 'pathlib'} & set(sys.modules))"
    )
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    done = run_program(
        [sys.executable, "-S", "-c", "import site; site.main()\n" + code], env, check=True
    )
    ours, heavy = done.stdout.split("\n")[:2]
    assert set(ours.split()) == {
        *("gpumon", "gpumon.model", "gpumon.model.thresholds", "gpumon.model.interval"),
        *("gpumon.text", "gpumon.text.units", "gpumon.system", "gpumon.system.folders"),
        *("gpumon.config", "gpumon.config.settings"),
    }
    assert not set(heavy.split()) & {"tomllib", "tomli", "difflib", "platformdirs"}


@pytest.mark.parametrize("home", ["", "   ", "/somewhere/else", "some/where"])
def test_everything_is_where_platformdirs_has_it(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", home)
    monkeypatch.setenv("XDG_STATE_HOME", home)
    assert config_path() == str(platformdirs.user_config_path("gpumon") / "config.toml")
    assert state_folder() == platformdirs.user_state_dir("gpumon")


def test_everything_can_be_settled(written: Written) -> None:
    loaded = written("""
interval = 2
columns = ["user", "command", "memory_used"]
theme = "amber"
readonly = true
graph = "power"
host_strip = true
sort = {column = "age", descending = false}
[units]
memory = "GB"
temperature = "F"
[thresholds]
hot_margin = 8
hot_unknown = 80
full_share = 0.1
idle_after = "10m"
stuck_utilization = 90
stuck_power_share = 0.2
stuck_after = 60.5
[keys]
end = "z"
"mine" = ["$", "ctrl+F5"]
""")
    assert said(loaded) == []
    settings, lines = loaded.settings, loaded.settings.thresholds
    assert (settings.interval, settings.theme, settings.readonly) == (2.0, "amber", True)
    assert settings.columns == ("pid", "user", "memory_used", "command")
    assert (settings.graph, settings.host_strip) == ("power", True)
    assert (settings.sort.column, settings.sort.descending) == ("age", False)
    assert (settings.units.memory, settings.units.temperature) == ("GB", "F")
    assert (lines.hot_margin, lines.hot_unknown, lines.full_share) == (8, 80, 0.1)
    assert (lines.idle_after, lines.stuck_after, lines.stuck_utilization) == (600, 60.5, 90)
    assert settings.keys.changed == {"end": ("z",), "mine": ("$", "ctrl+f5")}


def test_every_mistake_is_told_with_its_line_and_all_else_holds(written: Written) -> None:
    loaded = written("""intervall = 3
interval = 5000
columns = ["pid", "usr"]
hot_margin = 3
readonly = "yes"
unit.memory = "GB"
theme = "amber"
sort = "age"
graph = "utl"

[units]
memory = "gb"
[thresholds]
idle_after = "soon"
idle_affter = 3
full_share = nan
stuck_after = true
[keys]
endd = "y"
log = "f99"
""")
    told = said(loaded)
    assert told[0] == "config.toml, line 1: unknown setting intervall (did you mean interval?)."
    assert told[1] == (
        'config.toml, line 2: interval cannot be 5000: give seconds, or a time such as "90s" or '
        '"10m", from 0.1 to 3600.'
    )
    parts = [
        ("line 3", "'usr' is no column (did you mean user?); there are gpu, pid"),
        ("line 4", "hot_margin belongs under [thresholds]"),
        ("line 5", "readonly cannot be 'yes': give true or false"),
        ("", "unknown setting unit (did you mean units?)"),
        ("line 8", "sort is a table: write [sort] on a line alone"),
        ("line 9", "(did you mean util?)"),
        ("line 12", "give GiB or GB"),
        ("line 14", "thresholds.idle_after cannot be 'soon': give seconds"),
        ("line 15", "did you mean thresholds.idle_after?"),
        ("line 16", "cannot be nan: give a share from 0 to 1"),
        ("line 17", "cannot be true"),
        ("line 19", "unknown key action endd (did you mean end?)"),
        ("line 20", "'f99' is no key (did you mean f9?)"),
    ]
    for line, part in parts:
        assert any(line in sentence and part in sentence for sentence in told), part
    assert len(told) == len(parts) + 2
    assert msgspec.structs.replace(loaded.settings, theme=None) == Settings()
    assert loaded.settings.theme == "amber"
    assert loaded.brief.startswith("15 mistakes (gpumon config check): config.toml, line 1: ")


@pytest.mark.parametrize("port", ["0", "08000", "65536", "99999", "-1", "vllm", "٣", ""])
def test_a_key_for_what_is_no_port_is_refused(written: Written, port: str) -> None:
    loaded = written(f'[serving]\ntoken_files = {{"8000" = "~/a", "{port}" = "~/b"}}\n')
    [told] = said(loaded)
    assert "line 2: serving.token_files cannot be" in told
    assert "give a table of texts by port, such as" in told
    assert loaded.settings == Settings()
    loaded = written('[serving]\ntoken_files = {8000 = "~/a"}\n')
    assert said(loaded) == []
    assert loaded.settings.serving.token_files == {"8000": "~/a"}


@pytest.mark.parametrize(
    ("name", "nearest"), [("toggle_log", "topology"), ("kill", "kind"), ('"§"', "")]
)
def test_a_name_that_no_key_has_is_answered_with_the_nearest_and_not_with_all(
    written: Written, name: str, nearest: str
) -> None:
    [told] = said(written(f'[keys]\n{name} = "x"\n'))
    assert f"; the nearest is {nearest}" in told
    assert told.endswith(", and gpumon config show lists all.")
    assert len(told) < 140


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "interval = \n",
            "line 1: this is not TOML (invalid value), so the whole file is ignored.",
        ),
        ("a = 1\na = 2\n", "line 2: this is not TOML (cannot overwrite a value), so"),
        ("a = [", "config.toml: this is not TOML (invalid value), so the whole"),
        ("a = " + "[" * 5000, "config.toml: it is nested too deeply, so"),
        ("a = " + "9" * 9999, "config.toml: it is not TOML (Exceeds the limit"),
        (b"a = 1\nb = '\xff'\n", "config.toml: it is not UTF-8 from line 2 on: save it as UTF-8."),
        (b"#" * 2**21, "config.toml: it is larger than 1 MiB, which no configuration of gpumon is"),
        (b"\0", "config.toml, line 1: this is not TOML"),
    ],
    ids=["value", "twice", "end", "deep", "digits", "latin", "huge", "binary"],
)
def test_a_file_that_is_no_toml_leaves_the_defaults(
    text: str | bytes, words: str, written: Written
) -> None:
    loaded = written(text)
    assert words in " ".join(said(loaded))
    assert loaded.settings == Settings()


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)


def unreadable(path: Path) -> None:
    # Root may read what has no permissions; nobody may read a process's memory at 0 this way.
    if os.geteuid() == 0:
        path.symlink_to("/proc/self/mem")
    else:
        path.touch(mode=0)


def lowest_free_descriptor() -> int:
    """The number that the system gives to the next file."""
    number = os.dup(0)
    os.close(number)
    return number


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.mkdir, r": it is a folder, and should be a file\."),
        (os.mkfifo, r": it is not a regular file\."),
        (lambda it: it.symlink_to("nowhere"), r": it is a link to a file that is not there\."),
        (huge, ": it is larger than 1 MiB.*"),
        (unreadable, ": it cannot be read: .*"),
        (lambda it: it.write_text("interval = 0"), ", line 1: interval cannot be 0.*"),
    ],
    ids=["folder", "pipe", "dangling link", "huge", "unreadable", "invalid"],
)
def test_what_cannot_be_read_is_told_and_closed_and_nobody_waits_for_a_pipe(
    make: Callable[[Path], object], told: str, tmp_path: Path
) -> None:
    (tmp_path / "gpumon").mkdir()
    make(tmp_path / "gpumon" / "config.toml")
    before = lowest_free_descriptor()
    (sentence,) = said(load({"XDG_CONFIG_HOME": str(tmp_path)}))
    assert lowest_free_descriptor() == before
    assert re.fullmatch(rf"config\.toml{told}", sentence)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("columns = []", "columns cannot be []: give a list of columns"),
        ('columns = [["pid"]]', '["pid"] is no column; there are'),
        ('columns = [{ pid = "pid" }]', '{ pid = "pid" } is no column; there are'),
        ("graph = [1]", "cannot be [1]: give auto, util, memory, power, temperature, sm or dram"),
        ('[thresholds]\nhot_unknown = "90s"', "hot_unknown cannot be '90s': give degrees"),
        (f'interval = "{"x" * 200}"', f"interval cannot be '{'x' * 38}…: give seconds"),
        ('[keys]\nend = "q"', "keys.end: q "),
        ("serving.token_files = { 8000 = 5 }", "token_files cannot be { 8000 = 5 }: give a table"),
    ],
    ids=["none", "nested", "a table", "a list", "a time", "long", "a key that is taken", "no text"],
)
def test_what_no_setting_can_be_is_told_and_its_default_holds(
    text: str, words: str, written: Written
) -> None:
    loaded = written(text)
    (sentence,) = said(loaded)
    assert words in sentence
    assert loaded.settings == Settings()


@pytest.mark.parametrize("name", ["graph", "units.memory", "units.temperature", "keys.preset"])
def test_each_choice_that_a_setting_offers_can_be_set(name: str, written: Written) -> None:
    (sentence,) = said(written(f'{name} = "?"'))
    offered = re.split(", | or ", sentence.partition(": give ")[2].rstrip("."))
    assert len(offered) >= 2
    for choice in offered:
        loaded = written(f'{name} = "{choice}"')
        assert (value_of(loaded.settings, name), loaded.errors) == (choice, ())


_LONG = f"0x{'f' * 5000}"


@pytest.mark.parametrize(
    "text",
    [
        f"interval = {_LONG}",
        f"columns = [{_LONG}]",
        f"graph = {{a = {_LONG}}}",
        f"sort.column = {_LONG}",
        f"keys.end = [{_LONG}]",
        f"keys.{_LONG} = 1",
        f"keys.end = '{_LONG}'",
        f"interval = '{_LONG}'",
    ],
    ids=lambda text: text.partition("0x")[0],
)
def test_however_much_was_written_a_complaint_is_a_sentence(text: str, written: Written) -> None:
    loaded = written(text)
    assert loaded.settings == Settings()
    (sentence,) = said(loaded)
    assert sentence.startswith("config.toml, line 1: ")
    assert len(sentence) < 1100


def test_a_file_of_a_windows_editor_is_read(written: Written) -> None:
    loaded = written(b"\xef\xbb\xbfinterval = 2\r\nreadonly = true\r\n")
    assert (loaded.settings.interval, loaded.settings.readonly, said(loaded)) == (2.0, True, [])


def test_a_line_is_known_however_its_key_is_written(written: Written) -> None:
    text = (
        '# first\n"interval" = 0\nunits = {memory = "gb"}\nsort . "column" = "usr"\ntheme = " "\n'
    )
    interval, units, sort, theme = sorted(said(written(text)))
    assert interval.startswith("config.toml, line 2: interval cannot be 0")
    assert units == "config.toml, line 3: units.memory cannot be 'gb': give GiB or GB."
    assert sort.startswith("config.toml, line 4: sort.column cannot be 'usr'")
    assert theme == "config.toml, line 5: theme cannot be ' ': give the name of a theme."


def test_a_date_is_told_as_it_was_written(written: Written) -> None:
    assert said(written("theme = 1979-05-27"))[0].endswith(
        "theme cannot be 1979-05-27: give the name of a theme."
    )


def test_variables_go_over_the_file_and_are_judged_as_it_is(written: Written) -> None:
    text = 'interval = 2\nreadonly = true\ntheme = "amber"\n[units]\nmemory = "GB"\n'
    values = {"INTERVAL": "0.2", "READONLY": "0", "UNITS": "F", "COLUMNS": "user, age,"}
    loaded = written(text, **{f"GPUMON_{name}": value for name, value in values.items()})
    settings = loaded.settings
    assert said(loaded) == []
    assert (settings.interval, settings.readonly, settings.theme) == (0.2, False, "amber")
    assert (settings.units.memory, settings.units.temperature) == ("GB", "F")
    assert settings.columns == ("pid", "user", "age", "command")
    assert loaded.origins["interval"] == "GPUMON_INTERVAL"
    assert loaded.origins["theme"] == "the file, line 3"

    loaded = written(text, GPUMON_INTERVAL="fast", GPUMON_READONLY="maybe", GPUMON_UNITS="GB,K")
    assert [sentence.partition(":")[0] for sentence in said(loaded)] == [
        *("GPUMON_INTERVAL", "GPUMON_READONLY", "GPUMON_UNITS")
    ]
    assert (loaded.settings.interval, loaded.settings.readonly) == (2.0, True), "the file's hold"


def test_every_field_of_the_settings_is_a_setting() -> None:
    fields: set[str] = set()
    for name in Settings.__struct_fields__:
        value = getattr(Settings(), name)
        inner = value.__struct_fields__ if isinstance(value, msgspec.Struct) else ()
        fields |= {f"{name}.{key}" for key in inner} or {name}
    # These have readers of their own.
    assert fields - {"alerts", "keys.changed"} == set(SETTINGS)


class Undescribed(msgspec.Struct):
    bell: bool = True


class Unbounded(msgspec.Struct):
    pause: Annotated[float, msgspec.Meta(description="the pause")] = 1.0


class Wordless(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(description="the name")] = ""


@pytest.mark.parametrize("struct", [Undescribed, Unbounded, Wordless])
def test_a_field_that_declares_too_little_is_refused_at_once(struct: type[msgspec.Struct]) -> None:
    (name,) = struct.__struct_fields__
    with pytest.raises(TypeError, match=rf"^the setting {name} needs Annotated with a Number"):
        list(settings_of(struct()))


@pytest.mark.slow
def test_every_setting_is_used_outside_the_configuration() -> None:
    """As ``settings.NAME``, or ``TABLE.NAME``: a setting that is only read has no effect."""
    package = Path(gpumon.__file__).parent
    shows_them = {package / "cli/config.py", *package.glob("config/**/*.py")}
    used: set[tuple[str, str]] = set()
    for path in set(package.rglob("*.py")) - shows_them:
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Attribute):
                owner = node.value
                name = getattr(owner, "attr", getattr(owner, "id", ""))
                used.add((name.lstrip("_"), node.attr))
    unused = []
    for setting in SETTINGS:
        table, _, name = setting.rpartition(".")
        if used.isdisjoint({("settings", name), (table, name)}):
            unused.append(setting)
    assert unused == []


@pytest.mark.parametrize("name", VARIABLES)
def test_the_example_of_each_variable_is_valid(name: str, written: Written) -> None:
    loaded = written(**{name: VARIABLES[name].example})
    assert said(loaded) == []
    assert loaded.origins == dict.fromkeys(VARIABLES[name].names, name)


def test_the_file_to_begin_with_changes_nothing_and_names_everything(written: Written) -> None:
    assert written(template()) == Loaded(written().path)
    live = "\n".join(
        line if line.startswith("# ") else line.removeprefix("#")
        for line in template().splitlines()
    )
    loaded = written(live)
    assert said(loaded) == []
    assert set(loaded.origins) >= set(SETTINGS)
    for name, setting in SETTINGS.items():
        assert value_of(loaded.settings, name) == setting.default


def test_what_is_in_force_is_a_file_that_says_the_same(written: Written) -> None:
    loaded = written('interval = 2\n[keys]\nend = "z"\n', GPUMON_UNITS="F")
    told = effective(loaded)
    assert "interval = 2 " in told
    assert "# the file, line 1" in told
    assert 'temperature = "F"                         # GPUMON_UNITS\n' in told
    again = written(told)
    assert said(again) == []
    assert again.settings.units == loaded.settings.units
    assert again.settings.keys.changed["end"] == ("z",)


def test_the_page_tells_the_settings_as_the_code_has_them() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_tables(text) == text, "run: python -m tests.config.config_page"
