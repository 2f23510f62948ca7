"""``gpumon config`` as a person meets it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from gpumon.alerts import alert
from gpumon.cli.config import template
from tests.command import GPUMON, run_program, write_config
from tests.screen import PATIENCE


def gpumon(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GPUMON, *arguments],
        env={**os.environ, "XDG_CONFIG_HOME": str(home), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding=variables.get("PYTHONIOENCODING"),
        timeout=PATIENCE,
        check=False,
        umask=0o022,
    )


def test_the_path_is_told_alone(tmp_path: Path) -> None:
    done = gpumon("config", "path", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/gpumon/config.toml\n"


def test_a_first_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "not there yet" / "gpumon" / "config.toml"
    done = gpumon("config", "init", home=path.parents[1])
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}\n", "")
    assert path.read_text(encoding="utf-8") == f"{template()}\n{alert.template()}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    path.write_text("interval = 3\n", encoding="utf-8")
    again = gpumon("config", "init", home=path.parents[1])
    assert again.returncode == 1
    assert "exists already and is not changed" in again.stderr
    assert path.read_text(encoding="utf-8") == "interval = 3\n"


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = gpumon("config", "init", home=tmp_path / "file")
    said = f"gpumon: cannot write {tmp_path}/file/gpumon/config.toml: Not a directory.\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_no_half_a_file_is_left_where_the_disk_is_full(tmp_path: Path) -> None:
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *GPUMON, "config", "init"]
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    done = run_program(limited, env)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"gpumon: cannot write {tmp_path}/gpumon/config.toml: File too large.\n"
    assert list((tmp_path / "gpumon").iterdir()) == []


def test_a_check_says_what_is_wrong_and_fails_then(tmp_path: Path) -> None:
    done = gpumon("config", "check", home=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "does not exist: the defaults apply." in done.stdout
    path = tmp_path / "gpumon" / "config.toml"
    write_config(tmp_path, "interval = 1\n")
    done = gpumon("config", "check", home=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{path} is valid.\n")
    write_config(tmp_path, "intervall = 1\ntheme = 5\n")
    done = gpumon("config", "check", home=tmp_path, GPUMON_READONLY="perhaps")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        f"gpumon: {path}, line 1: unknown setting intervall (did you mean interval?).",
        f"gpumon: {path}, line 2: theme cannot be 5: give the name of a theme.",
        "gpumon: GPUMON_READONLY: it cannot be 'perhaps': give 1 or 0.",
    ]


def test_a_check_looks_for_the_theme(tmp_path: Path) -> None:
    path = tmp_path / "gpumon" / "config.toml"
    write_config(tmp_path, 'interval = 1\ntheme = "ambre"\n')
    done = gpumon("config", "check", home=tmp_path)
    said = f"gpumon: {path}, line 2: there is no theme 'ambre'; the nearest is 'amber'.\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    mine = path.parent / "themes" / "mine.toml"
    mine.parent.mkdir()
    mine.write_text("base = 3\n", encoding="utf-8")
    done = gpumon("config", "check", home=tmp_path, GPUMON_THEME="mine")
    assert done.returncode == 1
    assert f"gpumon: {mine}, line 1: base must be a text" in done.stderr
    assert gpumon("config", "check", home=tmp_path, GPUMON_THEME="nord").returncode == 0


def test_what_holds_is_shown_with_where_it_comes_from(tmp_path: Path) -> None:
    write_config(tmp_path, "interval = 2\n[keys]\nend = '$'\n")
    done = gpumon("config", "show", home=tmp_path, GPUMON_UNITS="GB")
    assert (done.returncode, done.stderr) == (0, "")
    origins = {
        line.partition(" = ")[0]: line.rpartition("  # ")[2] for line in done.stdout.splitlines()
    }
    assert origins["interval"] == "the file, line 1"
    assert origins["end"] == "the file, line 3"
    assert origins["memory"] == "GPUMON_UNITS"
    assert origins["temperature"] == origins["theme"] == "default"


def test_a_name_in_another_alphabet_than_the_terminals_is_no_crash(tmp_path: Path) -> None:
    write_config(tmp_path, 'theme = "夜"\n')
    done = gpumon("config", "show", home=tmp_path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 0
    assert 'theme = "?"' in done.stdout


def test_neither_imports_textual_nor_the_library_for_completion(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom gpumon.cli import main\nmain(['config', 'show'])\n"
        "assert not {'textual', 'shtab', 'pynvml'} & set(sys.modules)"
    )
    run_program(
        [sys.executable, "-c", code], {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}, check=True
    )
