"""Folders that cannot be read: in the variables that doctor examines, and in paths for commands."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import subprocess
from pathlib import Path
from typing import NoReturn

import pytest

from gpumon.cli import main
from gpumon.doctor import Check, CheckVerdict, passed, report
from gpumon.doctor.context import DiagnosticContext, DriverAnswer
from tests.command import GPUMON, run_program

pytestmark = pytest.mark.slow

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2

VARIABLES = (
    *("HOME", "CUDA_HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "GPUMON_LOCK_DIR"),
    *("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"),
)


def respect_modes() -> None:
    """Let the modes of files apply to root too, in a program that is started now."""
    if os.geteuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def gpumon(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program([*GPUMON, *arguments], {**os.environ, **variables}, before=respect_modes)


UNREADABLE = {"barred": "shut/bin", "loop": "loop", "too long": "x" * 300, "file": "file/bin"}
"""Paths below the folder of the fixture."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shut").mkdir(0)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").touch()
    return tmp_path


@pytest.mark.parametrize("kind", UNREADABLE)
def test_doctor_reports_every_check_whatever_folder_cannot_be_read(kind: str, folder: Path) -> None:
    path = str(folder / UNREADABLE[kind])
    variables = {**dict.fromkeys(VARIABLES, path), "PATH": f"{path}:{os.environ['PATH']}"}
    done = gpumon("doctor", "--json", **variables)
    assert done.stderr == ""
    report = json.loads(done.stdout)
    checks = {check["check"]: check for check in report["checks"]}
    assert done.returncode == (report["verdict"] == "fail")
    assert not [check for check in checks.values() if "The check failed" in check["found"]]
    assert {"toolkits", "kind", "version", "configuration", "state", "locks"} <= checks.keys()
    # What may be there is not said to be absent.
    assert checks["state"]["verdict"] == "warn"
    assert checks["locks"]["verdict"] == "warn" or kind == "file"
    if kind != "file":
        assert checks["configuration"]["verdict"] == "warn"
        assert checks["torch"]["verdict"] == "unknown"
        assert f"{path} (CUDA_HOME) cannot be read: " in " ".join(checks["toolkits"]["details"])


def test_a_check_that_fails_is_a_line_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = (
        (OSError(errno.ESTALE, os.strerror(errno.ESTALE), "/nfs"), "/nfs: Stale file handle."),
        (ValueError("embedded null byte"), "ValueError: embedded null byte."),
        (MemoryError(), "there is no memory left"),
    )
    for error, said in errors:

        def broken(_: DiagnosticContext, error: Exception = error) -> NoReturn:
            raise error

        sections = {
            "Driver": (Check("broken", broken), Check("other", lambda _: passed("It works.")))
        }
        monkeypatch.setattr(report, "SECTIONS", sections)
        case = DiagnosticContext(machine=object(), ask=DriverAnswer)  # type: ignore[arg-type]  # no check reads it
        first, second = report.examine(case)
        assert (first.check, first.verdict) == ("broken", CheckVerdict.UNKNOWN)
        assert f"The check failed: {said}" in first.found
        assert second.verdict is CheckVerdict.PASS


@pytest.mark.parametrize(
    ("arguments", "function"),
    [
        ("config show", "gpumon.cli.config.effective"),
        ("theme list", "gpumon.config.themes.ThemeLibrary.own"),
        ("report x.csv", "gpumon.report.output.find_logs"),
        ("doctor", "gpumon.doctor.report.examine"),
        ("select --demo", "gpumon.scheduling.select.GpuSampler"),
        ("alert list", "gpumon.alerts.alert.read_alerts"),
        ("watch --demo --alerts {}", "gpumon.alerts.watch.watch"),
        ("stream --demo", "gpumon.stream.session.stream"),
        ("snapshot --demo", "gpumon.sampling.gpu_sampler.take_one"),
        ("completion bash", "gpumon.config.themes.ThemeLibrary.names"),
        ("--demo --version", "gpumon.makers.machine.all_versions"),
    ],
)
def test_the_error_of_another_file_is_not_said_to_be_that_of_standard_output(
    arguments: str,
    function: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "alerts.toml").write_text('[[alerts]]\nwhen = "hot"\n', encoding="utf-8")
    line = [word.format(tmp_path / "alerts.toml") for word in arguments.split()]

    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(function, fail)
    error = OSError(errno.EIO, os.strerror(errno.EIO), "/nfs/x")
    assert main(line) == 1
    assert capsys.readouterr().err.endswith("gpumon: /nfs/x: Input/output error.\n")
    # A pipe to another program, as to ssh, is not one whose reader wants no more of the output.
    error = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
    with pytest.raises(BrokenPipeError):
        main(line)


@pytest.mark.parametrize("kind", UNREADABLE)
@pytest.mark.parametrize(
    "arguments",
    [
        *("theme check {}", "report {}", "watch --alerts {}", "log --demo --for 1s {}/x.csv"),
        "run -- {}/x",
    ],
)
def test_a_path_that_cannot_be_read_is_a_sentence(arguments: str, kind: str, folder: Path) -> None:
    path = folder / UNREADABLE[kind]
    done = gpumon(*(word.format(path) for word in arguments.split()))
    assert done.returncode in {1, 2, 126, 127}
    assert str(path) in done.stderr
    assert all(line.startswith("gpumon: ") for line in done.stderr.splitlines())
    assert "standard output" not in done.stderr


@pytest.mark.parametrize("kind", [kind for kind in UNREADABLE if kind != "file"])
def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    kind: str, folder: Path
) -> None:
    path = folder / UNREADABLE[kind]
    done = gpumon("snapshot", "--demo", XDG_CONFIG_HOME=str(path))
    assert done.returncode == 0
    assert f"gpumon: {path}/gpumon/config.toml: it cannot be read: " in done.stderr
    done = gpumon("theme", "show", "mine", XDG_CONFIG_HOME=str(path))
    assert done.returncode == 2
    assert f"{path}/gpumon/themes cannot be read: " in done.stderr
