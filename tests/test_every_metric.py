"""Every metric of the model through each door: JSON, CSV, a log, a stream, Prometheus, the screen.

A value arrives as it was measured, an unknown one is never 0, and no metric is left out.
"""

from __future__ import annotations

import csv
import io
import json
import math
import tempfile
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from gpumon.config.keymap import DEFAULT_WINDOW
from gpumon.export.as_csv import gpus_csv
from gpumon.export.as_json import to_json
from gpumon.export.as_prometheus import STATUS, exported_metrics, exported_value, to_prometheus
from gpumon.findings import conditions
from gpumon.model.makers import maker_of
from gpumon.model.metrics import Metric, Unit
from gpumon.model.snapshot import GPU_METRICS, Gpu
from gpumon.recording.csv.recording import open_log
from gpumon.recording.history import History
from gpumon.ui.view.frame import Memo
from gpumon.ui.view.gpu_page import gpu_rows
from tests.build import NOON, recording_of, snapshot
from tests.recording.csv.reading import write_log
from tests.stream.wire import parts_of, read

MEASURED: dict[Unit, object] = {
    Unit.TEXT: "Default",
    Unit.NUMBER: 3,
    Unit.ENABLED: True,
    Unit.YES_NO: True,
    Unit.PSTATE: 2,
    Unit.BITS: 0x24,
    Unit.BYTES: 7 * 2**20,
    Unit.PERCENT: 41,
    Unit.SHARE: 8.4,
    Unit.CELSIUS: 53,
    Unit.WATTS: 340.15,
    Unit.JOULES: 1137178929.505,
    Unit.MEGAHERTZ: 1980,
    Unit.RPM: 2100,
    Unit.PER_SECOND: 2,
    Unit.BYTES_PER_SECOND: 1000.0 * 2**20,
    Unit.TIME: NOON - 60,
}
IN_CSV = {
    **{unit: str(value) for unit, value in MEASURED.items()},
    Unit.ENABLED: "Enabled",
    Unit.YES_NO: "Yes",
    Unit.PSTATE: "P2",
    Unit.BITS: "0x0000000000000024",
    Unit.BYTES: "7",
    Unit.BYTES_PER_SECOND: "1000",
}
NUMBERS = [metric for metric in GPU_METRICS if metric.unit is not Unit.TEXT]


class Exported:
    """A GPU, and what comes of it through each door."""

    def __init__(self, **values: object) -> None:
        self.gpu = replace(Gpu(3, "GPU-3"), **values)
        self.snapshot = snapshot(NOON, self.gpu)

    @cached_property
    def json(self) -> dict[str, object]:
        (row,) = json.loads(to_json(self.snapshot))["gpus"]
        found: dict[str, object] = row
        return found

    @cached_property
    def csv(self) -> dict[str, str]:
        """Cells by nvidia-smi's name, without the unit."""
        (row,) = csv.DictReader(io.StringIO(gpus_csv(self.snapshot)))
        return {column.partition(" [")[0]: cell for column, cell in row.items()}

    @cached_property
    def log(self) -> Gpu:
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(open_log(write_log(Path(folder, "run.csv"), [self.snapshot]))) as log,
        ):
            shown = log.at(NOON)
            assert shown is not None
            (found,) = shown.gpus
            return found

    @cached_property
    def stream(self) -> Gpu:
        (sample,) = read(b"".join(parts_of([self.snapshot])))
        (found,) = sample.snapshot.gpus
        return found

    @cached_property
    def prometheus(self) -> dict[str, float]:
        """The one sample of each name."""
        families = text_string_to_metric_families(to_prometheus(self.snapshot))
        found = {family.name: family.samples for family in families}
        return {name: sample.value for name, (sample,) in found.items()}

    @cached_property
    def screen(self) -> str:
        history = History(conditions())
        history.add(self.snapshot)
        rows = gpu_rows(
            *(Memo(), self.gpu, history, history.latest, DEFAULT_WINDOW, recording_of()),
            *(200, 200, ""),
        )
        return " ".join(" ".join("".join(text for text, _ in row) for row in rows).split())


KNOWN = Exported(**{metric.field: MEASURED[metric.unit] for metric in GPU_METRICS})
ZERO = Exported(**{metric.field: type(MEASURED[metric.unit])() for metric in NUMBERS})
UNKNOWN = Exported()

WITHOUT_IDENTITY = [metric for metric in GPU_METRICS if metric.field not in {"index", "uuid"}]
SHOWN = [metric for metric in WITHOUT_IDENTITY if metric.is_for(maker_of(KNOWN.gpu.name))]


def each(metrics: Sequence[Metric]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("metric", metrics, ids=lambda metric: metric.field)


def dcgm_name(metric: Metric) -> str | None:
    return None if metric.unit is Unit.TEXT else metric.dcgm


@each(GPU_METRICS)
@pytest.mark.parametrize("exported", [KNOWN, ZERO], ids=["measured", "zero"])
def test_a_value_arrives_as_it_was_measured(metric: Metric, exported: Exported) -> None:
    value = getattr(exported.gpu, metric.field)
    assert exported.json[metric.json_key] == value
    assert getattr(exported.stream, metric.field) == value
    assert getattr(exported.log, metric.field) == (value if metric.logged else None)
    if (name := dcgm_name(metric)) is not None:
        assert exported_value(metric, exported.prometheus[name]) == value


@each([metric for metric in GPU_METRICS if metric.smi])
def test_a_cell_of_csv_has_nvidia_smis_unit_and_words(metric: Metric) -> None:
    assert KNOWN.csv[metric.smi or ""] == IN_CSV[metric.unit]


def test_zero_is_zero_in_csv() -> None:
    assert ZERO.csv["utilization.gpu"] == "0"


@each(SHOWN)
def test_the_page_of_a_gpu_has_a_value_or_the_reason_why_not(metric: Metric) -> None:
    assert f"{metric.label} " in KNOWN.screen
    assert f"{metric.label} – " not in KNOWN.screen
    reason = "none seen" if metric.field in {"xid", "xid_at"} else "– not read yet"
    assert f"{metric.label} {reason}" in UNKNOWN.screen


@each(WITHOUT_IDENTITY)
def test_what_is_unknown_is_nowhere_a_value(metric: Metric) -> None:
    assert UNKNOWN.json[metric.json_key] is None
    assert getattr(UNKNOWN.stream, metric.field) is None
    assert getattr(UNKNOWN.log, metric.field) is None
    assert UNKNOWN.csv.get(metric.smi or "", "") == ""


def test_unknown_values_are_no_samples_and_all_others_are() -> None:
    assert UNKNOWN.prometheus == {STATUS: 1}
    names = {name for metric in GPU_METRICS if (name := dcgm_name(metric)) is not None}
    assert KNOWN.prometheus.keys() == {STATUS, *names}
    assert names == {name for _, name, _, _ in exported_metrics()}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_unknown(number: float) -> None:
    gpu = Exported(power_draw=number)
    assert gpu.json["power_draw_watts"] is None
    assert gpu.csv["power.draw"] == ""
    assert gpu.prometheus == {STATUS: 1}
