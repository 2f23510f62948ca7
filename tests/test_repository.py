"""What the host of the repository reads: CI, templates of issues, the citation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gpumon import __version__

ROOT = Path(__file__).parents[1]
TEMPLATES = [
    path
    for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").iterdir())
    if path.name != "config.yml"
]


def read(path: Path | str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_ci_runs_what_must_pass_on_every_python_that_is_supported() -> None:
    workflow = read(".github/workflows/ci.yml")
    job = workflow["jobs"]["test"]
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = "Programming Language :: Python :: "
    supported = [name.removeprefix(named) for name in project["classifiers"] if named in name]
    assert job["strategy"]["matrix"]["python"] == [name for name in supported if "." in name]
    steps = job["steps"]
    assert "bash .ci/run" in [step.get("run") for step in steps]
    [setup] = [step for step in steps if "setup-python" in step.get("uses", "")]
    assert setup["with"]["python-version"] == "${{ matrix.python }}"
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_an_issue_asks_for_what_the_doctor_finds_without_private_names(template: Path) -> None:
    form = read(template)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)
    labels = [field["attributes"]["label"] for field in fields]
    assert "gpumon doctor --scrub" in labels
    assert ("gpumon version" in labels) == (template.stem == "bug")
    assert {"name", "description"} <= form.keys()


def test_vulnerabilities_are_reported_in_private() -> None:
    assert "in private" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "../security/advisories/new" in str(read(".github/ISSUE_TEMPLATE/bug.yml"))
    # An issue without a template would not show that sentence.
    assert read(".github/ISSUE_TEMPLATE/config.yml")["blank_issues_enabled"] is False


def test_what_is_needed_is_kept_up_to_date() -> None:
    updates = read(".github/dependabot.yml")["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"pip", "github-actions"}


def test_the_citation_names_this_version() -> None:
    assert read("CITATION.cff")["version"] == __version__
