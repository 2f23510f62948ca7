"""The conda recipe asks for what ``pyproject.toml`` asks for."""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from gpumon import __version__

ROOT = Path(__file__).parents[2]
RECIPE = yaml.safe_load((ROOT / "packages/conda/recipe.yaml").read_text(encoding="utf-8"))
PROJECT = msgspec.toml.decode((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ITS_NAMES = {"prometheus-client": "prometheus_client"}
"""Names on conda-forge that are not those of the Python packages."""


def in_conda(requirement: str) -> str:
    """A requirement of ``pyproject.toml`` in the words of conda."""
    name, _, versions = requirement.partition(";")[0].strip().partition(">=")
    return f"{ITS_NAMES.get(name, name)} >={versions}"


def test_its_version_is_that_of_the_program() -> None:
    assert RECIPE["package"] == {"name": PROJECT["project"]["name"], "version": __version__}


def test_it_requires_the_same_versions() -> None:
    python = f"python {PROJECT['project']['requires-python']}"
    needed = map(in_conda, PROJECT["project"]["dependencies"])
    assert RECIPE["requirements"]["run"] == [python, *needed]
    built = map(in_conda, PROJECT["build-system"]["requires"])
    assert RECIPE["requirements"]["host"] == [python, "pip", *built]


def test_it_makes_the_same_program_from_this_checkout() -> None:
    scripts = PROJECT["project"]["scripts"]
    points = [f"{name} = {place}" for name, place in scripts.items()]
    assert RECIPE["build"]["python"]["entry_points"] == points
    assert (ROOT / "packages/conda" / RECIPE["source"]["path"]).resolve() == ROOT
    assert (ROOT / RECIPE["about"]["license_file"]).is_file()
