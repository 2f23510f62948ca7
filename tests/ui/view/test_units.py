"""Amounts on screen are told in the units that were chosen, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.config.keymap import WINDOWS
from gpumon.export.as_csv import gpus_csv, processes_csv
from gpumon.export.as_json import to_json
from gpumon.export.as_prometheus import to_prometheus
from gpumon.findings import gpu_findings, process_findings
from gpumon.model.metrics import Unit
from gpumon.recording.csv.columns import cell
from gpumon.text.formatting import gibibytes, memory_size, temperature
from gpumon.text.units import Units, use_units
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_charts import chart_rows
from gpumon.ui.view.gpu_page import gpu_rows
from tests.build import GIB, NOON, gpu, process, recording_of, snapshot
from tests.ui.view.drawing import demo, demo_picture, history_of, lines_of, picture

PACKAGE = Path(__file__).parents[3] / "gpumon"


@pytest.fixture
def other_units() -> Iterator[None]:
    use_units(Units("GB", "F"))
    yield
    use_units(Units())


HOT = snapshot(
    NOON,
    gpu(temperature_gpu=88, temperature_slowdown=90, memory_used=70 * GIB),
    processes=(process(1, memory_used=20 * GIB),),
)


@pytest.mark.usefixtures("other_units")
@pytest.mark.parametrize(("width", "height"), [(40, 10), (80, 24), (200, 50)])
def test_the_dashboard_tells_powers_of_1000_and_fahrenheit(width: int, height: int) -> None:
    told = demo_picture(8, width, height)
    assert "/85.5G" in told, "79.6 GiB"
    assert not re.search("GiB|MiB|°C|79.6", told)
    assert "33G unattr" in told, "31 GiB"
    if width >= 60:
        assert "°F" in told
        assert re.search(r"H100.* 187 ", told), "86 °C"


@pytest.mark.usefixtures("other_units")
def test_pages_and_findings_tell_them_too() -> None:
    history, (card,), (owner,) = history_of(HOT), HOT.gpus, HOT.processes
    page = gpu_rows(Memo(), card, history, HOT, WINDOWS[0], recording_of(), 100, 48)
    findings = [*gpu_findings(history, card), *process_findings(history, owner)]
    said = (part for one in findings for part in (one.sentence, one.short, *one.evidence))
    told = "\n".join([*said, *lines_of(page)])
    assert "190 °F" in told, "88 °C"
    assert "75.2" in told, "70 GiB"
    assert not re.search("GiB|MiB|°C", told)


@pytest.mark.usefixtures("other_units")
def test_the_charts_have_axes_in_them() -> None:
    rows = chart_rows(Memo(), HOT.gpus[0], history_of(HOT), WINDOWS[0], recording_of(), 200, 50)
    told = "\n".join(lines_of(rows))
    assert re.search(r"memory  75\.2/85\.9 GB", told)
    assert re.search(r"\b60G┤", told)
    assert re.search(r"temperature  190/194 °F", told)
    assert re.search(r"194°┤", told)
    assert "peak 75.2" in told


def test_the_usual_units_are_those_of_nvidia_smi() -> None:
    assert (gibibytes(80 * GIB), memory_size(80 * GIB), temperature(88)) == ("80.0", "80.0G", "88")
    told = picture(HOT, 120, 30)
    assert "°C" in told
    assert "°F" not in told


@pytest.mark.usefixtures("other_units")
def test_a_program_reads_the_same_whatever_is_chosen() -> None:
    now, _ = demo()

    def exported() -> list[str]:
        told = [to_json(now), gpus_csv(now), processes_csv(now), to_prometheus(now)]
        return [*told, cell(3 * GIB, Unit.BYTES), cell(86, Unit.CELSIUS)]

    use_units(Units())
    before = exported()
    use_units(Units("GB", "F"))
    assert exported() == before


@pytest.mark.parametrize("room", ["findings", "recording/history", "recording/memory", "ui"])
def test_no_view_writes_a_unit_that_could_have_been_chosen_otherwise(room: str) -> None:
    paths = sorted((PACKAGE / room).rglob("*.py"))
    assert paths
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documented = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                is_doc = id(node) in documented
                assert is_doc or not re.search("GiB|MiB|°C", node.value), f"{path}:{node.lineno}"
