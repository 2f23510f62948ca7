"""What a newcomer gets: a wheel with everything in it, and pages whose words are true."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from gpumon import __version__

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "tests/driver/README.md")
)
VIRTUAL_ENVIRONMENT = "python3 -m venv .venv && . .venv/bin/activate"
INSTALL = "pip install . && gpumon --demo"
TEST = "pip install -e '.[dev]' && pytest"


def words(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_wheel_holds_all_that_gpumon_needs_when_it_is_installed(tmp_path: Path) -> None:
    # Without pip, which would fetch what pyproject.toml builds with.
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.iterdir()
    assert wheel.name == f"gpumon_tui-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"gpumon_tui-{__version__}.dist-info"
        metadata = message_from_bytes(archive.read(f"{info}/METADATA"))
        commands = configparser.ConfigParser()
        commands.read_string(archive.read(f"{info}/entry_points.txt").decode())

    # Every file of the package, so its styles and its py.typed too, and the themes beside it.
    shipped = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gpumon").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    themes = {f"gpumon/themes/{path.name}" for path in (ROOT / "themes").glob("*.toml")}
    assert themes
    assert "gpumon/py.typed" in shipped
    assert any(name.endswith(".tcss") for name in shipped)
    manual = {f"man/man1/{path.name}" for path in (ROOT / "packages/man").iterdir()}
    completions = {
        "bash-completion/completions/gpumon",
        "fish/vendor_completions.d/gpumon.fish",
        "zsh/site-functions/_gpumon",
    }
    assert "man/man1/gpumon.1" in manual
    # pip puts these below the prefix, where man, the shells and systemd look for them.
    data = {f"gpumon_tui-{__version__}.data/data/share/{name}" for name in manual | completions}
    units = {path.name for path in (ROOT / "packages/systemd").iterdir()}
    assert "gpumon-log.service" in units
    data |= {f"gpumon_tui-{__version__}.data/data/lib/systemd/system/{name}" for name in units}
    assert {name for name in names if not name.startswith(info)} == shipped | themes | data
    assert f"{info}/licenses/LICENSE" in names

    assert metadata["Name"] == "gpumon-tui"
    assert metadata["Version"] == __version__
    assert metadata["Requires-Python"] == ">=3.10"
    assert dict(commands["console_scripts"]) == {"gpumon": "gpumon.cli:main"}


def test_the_readme_has_the_two_commands_that_set_everything_up() -> None:
    lines = [line.strip() for line in words("README.md").splitlines() if line.startswith("    ")]
    assert lines.count(INSTALL) == 1
    assert lines.count(VIRTUAL_ENVIRONMENT) == 1
    assert lines.count(TEST) == 1


def test_ci_runs_the_readmes_test_command_as_it_stands_there() -> None:
    script = words(".ci/run")
    (extract,) = re.findall(r"^tests=\$\((.+)\)$", script, re.MULTILINE)
    found = subprocess.run(
        ["sh", "-c", extract], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == TEST
    assert 'eval "$tests"' in script


@pytest.mark.parametrize("page", PAGES)
def test_every_link_of_a_page_leads_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", words(page))
    for target in targets:
        if not target.startswith(("https://", "#")):
            assert (ROOT / page).parent.joinpath(target.partition("#")[0]).exists(), target


def test_the_links_that_are_looked_for_can_be_found() -> None:
    assert "(screenshots/dashboard.svg)" in words("README.md")
    assert "docs/snapshot.md" in PAGES


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CONTRIBUTING.md",
    ],
)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    named = re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml)))`", words(page))
    assert [
        name for name in named if not any((at / name).exists() for at in (ROOT, ROOT / "gpumon"))
    ] == []


def test_the_changelog_has_a_place_for_what_comes_next() -> None:
    assert re.search(r"^## \[?Unreleased\]?$", words("CHANGELOG.md"), re.MULTILINE)


# Written so that it does not find itself.
_REGISTRY = re.compile(
    r"pypi[.]org|pythonhosted[.]org|(?:index|trusted|extra-index)[-_](?:url|host)"
    r"|find[-_]links[ =]|https?://[^\s\"'`)]+/(?:simple|pypi|artifactory|nexus|devpi)\b",
    re.IGNORECASE,
)


@pytest.mark.slow
def test_no_file_names_a_package_registry() -> None:
    assert _REGISTRY.search("https://packages.example/api/" + "simple/"), "it finds one"
    skipped = re.compile(r"(^|/)(\.(?!ci|gitignore)[^/]*|__pycache__|build|dist|[^/]+\.egg-info)/")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*")
        if path.is_file() and not skipped.search(path.relative_to(ROOT).as_posix())
    ]
    assert "pyproject.toml" in found
    assert ".ci/run" in found
    guilty = {
        name: match.group()
        for name in found
        if (match := _REGISTRY.search((ROOT / name).read_text("utf-8", "replace")))
    }
    assert guilty == {}
