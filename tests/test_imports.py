"""What is imported when: start-up is short because nothing heavy comes before it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import gpumon
from tests.driver import Driver, h100

HEAVY = ("msgspec", "psutil", "pynvml", "textual", "prometheus_client", "rich")
"""What takes milliseconds to import."""

_OF_OTHERS = {
    *("_compositor_refresh", "_driver", "_registry"),  # Textual's
    "_repr_html_",  # what IPython calls
    *("_action_groups", "_get_formatter", "_width"),  # argparse's
    "_replace",  # of named tuples
}
"""Private names that gpumon has as well."""

_AFTER_MAIN = """
import contextlib, io, sys
from gpumon.cli import main
with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(SystemExit):
    assert main(sys.argv[1:]) == 0
assert printed.getvalue()
"""

_EVERY_MODULE = """
import importlib, pkgutil, sys
import gpumon
def walk(package):
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name == "gpumon.ui":
            continue
        module = importlib.import_module(found.name)
        if "textual" in sys.modules:
            sys.exit(f"{found.name} imports Textual")
        print(found.name)
        if found.ispkg:
            walk(module)
walk(gpumon)
"""


_WITHOUT_UNIX = """
import os, signal, sys
import platformdirs, textual.app
for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for number in list(signal.Signals):
    if number.name not in {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}:
        delattr(signal, number.name)
for name in ("geteuid", "getuid", "sysconf", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW"):
    delattr(os, name)

import importlib, pkgutil
import gpumon
for found in pkgutil.walk_packages(gpumon.__path__, "gpumon."):
    # What has a Unix terminal is imported where one is taken.
    if not found.name.endswith("__main__") and found.name != "gpumon.ui.terminal.driver":
        importlib.import_module(found.name)
        print(found.name)
"""


def run(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_after(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> set[str]:
    """Which of the heavy packages a program has imported when it is through."""
    told = "\nprint(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    return set(HEAVY) & set(run(code + told, *arguments, env=env).split())


@pytest.mark.slow
def test_no_module_outside_the_screen_imports_textual() -> None:
    walked = run(_EVERY_MODULE).split()
    assert len(walked) >= 40
    assert {"gpumon.cli", "gpumon.cli.snapshot", "gpumon.makers.nvidia.source"} <= set(walked)


@pytest.mark.slow
def test_every_module_can_be_imported_on_a_system_that_is_no_unix() -> None:
    imported = run(_WITHOUT_UNIX).split()
    assert {"gpumon.kill.signals", "gpumon.ui.app", "gpumon.ui.terminal.terminal"} <= set(imported)


@pytest.mark.parametrize("form", ["table", "json", "csv", "prometheus"])
def test_a_snapshot_imports_neither_textual_nor_what_other_formats_need(form: str) -> None:
    heavy = heavy_after(_AFTER_MAIN, "snapshot", "--demo", "--format", form)
    assert "textual" not in heavy
    assert "msgspec" in heavy, "what is looked for can be found"
    assert ("prometheus_client" in heavy) == (form == "prometheus")
    assert not heavy & {"pynvml", "psutil"}, "a demo asks no driver"


def test_a_snapshot_of_real_cards_does_not_import_textual() -> None:
    with Driver([h100()]) as driver:
        heavy = heavy_after(_AFTER_MAIN, "snapshot", "--format", "json", env=driver.env())
    assert "textual" not in heavy
    assert "msgspec" in heavy


@pytest.mark.parametrize(
    "arguments",
    [["snapshot"], ["snapshot", "--format", "json"], ["snapshot", "--filter", "mem>1G"]],
    ids=" ".join,
)
def test_a_snapshot_imports_no_second_module_of_types(arguments: list[str]) -> None:
    told = "import sys\n" + _AFTER_MAIN + "\nprint(*sys.modules)"
    modules = set(run(told, *arguments, "--demo").split())
    assert "msgspec" in modules
    assert not modules & {"typing_extensions", "rich"}
    # From Python 3.14 on argparse itself imports it, for the colours of its help.
    assert "inspect" not in modules or sys.version_info >= (3, 14)


@pytest.mark.parametrize(
    ("function", "package", "left_out"),
    [("import_msgspec", "msgspec", "typing_extensions"), ("import_asyncio", "asyncio", "ssl")],
)
def test_what_a_package_was_imported_without_is_there_for_others(
    function: str, package: str, left_out: str
) -> None:
    program = (
        f"import sys; from gpumon.system.startup_imports import {function}; {function}();"
        f"print('{package}' in sys.modules, '{left_out}' in sys.modules);"
        f"import {left_out}; {function}(); print('{left_out}' in sys.modules)"
    )
    assert run(program) == "True False\nTrue\n"


def test_another_thread_imports_what_the_screen_starts_without() -> None:
    program = (
        "from threading import Thread; from gpumon.system.startup_imports import hidden\n"
        "def ask():\n"
        "    import gpumon.serving.client\n"
        "    print('asked')\n"
        "thread = Thread(target=ask)\n"
        "with hidden('ssl'):\n"
        "    thread.start()\n"
        "    thread.join()\n"
    )
    assert run(program) == "asked\n"


@pytest.mark.slow
def test_textual_is_imported_without_widgets_that_nobody_sees() -> None:
    program = (
        "import sys; from gpumon.ui.startup import import_textual; import_textual();"
        "import gpumon.ui.app;"
        "print('textual.app' in sys.modules, 'textual.widgets._directory_tree' in sys.modules);"
        "from textual.types import DirEntry; print(DirEntry.__module__)"
    )
    assert run(program) == "True False\ntextual.widgets._directory_tree\n"


def test_choosing_a_card_imports_little() -> None:
    with Driver([h100(), h100()]) as driver:
        heavy = heavy_after(_AFTER_MAIN, "select", "-n", "2", env=driver.env())
        asked = "import sys\n" + _AFTER_MAIN + "\nprint(*sys.modules)"
        modules = set(run(asked, "select", env=driver.env()).split())
    assert not heavy & {"textual", "rich", "prometheus_client"}
    assert not modules & {"gpumon.ui.view", "gpumon.host.workloads", "http.client", "secrets"}


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["snapshot", "--help"], ["select", "--help"], ["run", "--help"]],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert heavy_after(_AFTER_MAIN, *arguments) == set()


def test_versions_are_told_without_importing_the_screen() -> None:
    assert heavy_after(_AFTER_MAIN, "--version") <= {"msgspec", "pynvml"}


def test_the_command_line_alone_imports_nothing_heavy() -> None:
    assert heavy_after("import sys, gpumon.cli") == set()


def test_gpumon_remote_imports_no_driver_and_no_source_of_samples() -> None:
    """It answers for processes, and starts with every host that somebody opens."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpumon", "remote"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "gpumon.remote.server" in imported
    assert not {name for name in imported if name.startswith(("pynvml", "gpumon.makers."))}


@pytest.mark.slow
def test_tests_use_public_names_so_that_a_room_can_be_built_anew() -> None:
    """Nor do the programs in their texts use private ones."""

    def found(folder: Path, pattern: str) -> dict[str, set[str]]:
        names = re.compile(pattern, re.MULTILINE)
        files = {str(file): file.read_text("utf-8") for file in folder.rglob("*.py")}
        return {file: set(names.findall(text)) for file, text in files.items()}

    defined = r"(?:\b(?:class|def) |\bself\.|^)(_[a-zA-Z]\w*)\b(?= *[(:=])"
    used = (
        r"(?:(?<!\bself)(?<!\bcls)\.|attr\([\w., ]+\"|\bfrom gpumon[\w.]* import (?:\w+, )*)"
        r"(_[a-zA-Z]\w*)"
    )
    rooms = found(Path(gpumon.__file__).parent, defined)
    private = set().union(*rooms.values()) - _OF_OTHERS
    assert private
    own = found(Path(__file__).parent, defined)
    wrong = {
        f"{name} in {file}"
        for file, names in found(Path(__file__).parent, used).items()
        for name in private & names - own[file]
    }
    assert not wrong
