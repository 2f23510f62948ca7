"""Each example of ``docs/python.md`` runs, on a simulated machine.

Frameworks that are not installed here have stand-ins with just what the examples call.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "python.md"
_STAND_INS = Path(__file__).parent / "stand_ins"
_EXAMPLES = re.findall(
    r"^```python\n(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL
)
_FRAMEWORKS = ("torch", "lightning", "keras", "wandb", "mlflow")
_CHECKS = {
    "torch": "print(loss.item(), epoch)",
    "lightning": """
class Module:
    def log(self, name, value):
        print(name, value)
figures = GpuFigures()
figures.on_train_epoch_start(None, Module())
figures.on_train_epoch_end(None, Module())
""",
    "keras": """
figures, logs = GpuFigures(), {}
figures.on_epoch_begin(0, logs)
figures.on_epoch_end(0, logs)
print(logs)
""",
    "wandb": "print(m.to_dict()['seconds'])",
    "mlflow": "print(m.seconds)",
}
"""What the examples of frameworks leave to their reader, or what is looked at afterwards."""


def framework(example: str) -> str | None:
    """The framework that an example imports."""
    return next(
        (name for name in _FRAMEWORKS if re.search(rf"^import {name}$", example, re.MULTILINE)),
        None,
    )


def test_the_page_has_an_example_for_each_framework() -> None:
    assert {framework(one) for one in _EXAMPLES} == {None, *_FRAMEWORKS}


@pytest.mark.slow
def test_the_examples_run_one_after_another(
    program: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "\n".join(one for one in _EXAMPLES if framework(one) is None)
    code += """
assert len(m.gpus) == 0 and m.trouble is None
train()
import asyncio
asyncio.run(serve())
"""
    printed = program(code)
    assert "30.0 GiB" in printed
    assert "utilization_gpu_percent" in printed
    assert printed.count("This process was seen on no GPU.") == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", _FRAMEWORKS)
def test_the_example_of_a_framework_runs(
    name: str, program: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = (one for one in _EXAMPLES if framework(one) == name)
    prelude = "import warnings\nwarnings.simplefilter('ignore')\n"
    if importlib.util.find_spec(name) is None:
        prelude += f"import sys\nsys.path.append({str(_STAND_INS)!r})\n"
    own = "import functools, gpumon\ngpumon.measure = functools.partial(gpumon.measure, 'all')\n"
    assert program(prelude + own + example + _CHECKS[name])
