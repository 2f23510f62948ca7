"""The metrics and what Prometheus is asked about them, as PromQL.

Names of metrics are read backwards here, from that of an exporter to a field. dcgm-exporter's names
and units are in ``export.as_prometheus``. nvidia_gpu_exporter makes its names of nvidia-smi's: dots
become underscores, and the unit becomes a suffix.
"""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpumon.export.as_prometheus import (
    DRIVER_UP,
    STATE,
    STATUS,
    USER_METRICS,
    exported_metrics,
    exported_value,
)
from gpumon.fleet.fleet import FleetError
from gpumon.model.metrics import Metric, Unit
from gpumon.model.snapshot import GPU_METRIC, GPU_METRICS
from gpumon.recording.csv.nvidia_smi import OTHER_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

SMI_INFO = "nvidia_smi_gpu_info"
USER_GPUS, USER_MEMORY, USER_IDLE_MEMORY = USER_METRICS
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
"""How often dcgm-exporter has seen the XID of the label ``xid`` within its window."""
_ALL_NAMES = f"DCGM_FI_.+|{XID_COUNT}|nvidia_smi_.+|gpumon_.+"
"""A pattern for the names of every exporter."""

_SMI_SUFFIXES: dict[Unit, tuple[str, Callable[[float], float]]] = {
    Unit.BYTES: ("_bytes", lambda size: size),
    # A ratio such as 0.07 times 100 is not exactly a whole number.
    Unit.PERCENT: ("_ratio", lambda ratio: round(ratio * 100, 6)),
    Unit.WATTS: ("_watts", lambda power: power),
    Unit.MEGAHERTZ: ("_clock_hz", lambda clock: clock / 1e6),
}
_BLANK_INTEGERS = range(2**31 - 16, 2**31)
_BLANK_LONG = float(2**63)
"""What 9223372036854775792 and the 15 after it are as floating-point numbers."""
_BLANK_FLOATS = range(2**47, 2**47 + 16)
_REAL_UNITS = (Unit.WATTS, Unit.JOULES, Unit.BYTES_PER_SECOND, Unit.SHARE)
_YES_NO_UNITS = (Unit.ENABLED, Unit.YES_NO)


class ExportedField(NamedTuple):
    """The field of the model that a metric is."""

    metric: Metric  # the row of the table
    convert: Callable[[float], float]  # from the exporter's unit to the model's

    def read(self, text: str) -> float | bool | None:
        """The value in the model's unit; ``None`` for a blank and for what is no number."""
        value = number(text)
        if value is None or _is_blank(value):
            return None
        value = self.convert(value)
        if self.metric.unit in _YES_NO_UNITS:
            return value != 0
        if self.metric.field == "xid" and value == 0:
            return None
        return value if self.metric.unit in _REAL_UNITS else round(value)


def number(text: str) -> float | None:
    """A finite number; ``None`` if it is none."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_blank(value: float) -> bool:
    """Whether it is one of the numbers that DCGM writes for an unknown value."""
    return value == _BLANK_LONG or value in _BLANK_INTEGERS or value in _BLANK_FLOATS


def _names_of(fields: Iterable[str]) -> str:
    """A pattern for the metrics of all exporters that are one of these fields."""
    wanted = {GPU_METRIC[field] for field in fields}
    return "|".join(name for name, known in FIELDS.items() if known.metric in wanted)


def _fields() -> Iterator[tuple[str, ExportedField]]:
    for metric, name, _, _ in exported_metrics():
        yield name, ExportedField(metric, partial(exported_value, metric))
    others = {name: other for other, name in OTHER_NAMES.items()}
    for metric in GPU_METRICS:
        if metric.smi is None or metric.unit is Unit.TEXT:
            continue
        suffix, convert = _SMI_SUFFIXES.get(metric.unit, ("", float))
        for name in filter(None, (metric.smi, others.get(metric.smi))):
            yield f"nvidia_smi_{name.replace('.', '_')}{suffix}", ExportedField(metric, convert)


FIELDS: dict[str, ExportedField] = dict(_fields())
"""The field of each metric, by its name at the exporter."""


LONGEST_MATCH = 1000
_HOST = "Hostname,hostname,instance"
_GPU = f"{_HOST},gpu,UUID,uuid,GPU_I_ID"
_MEMORY_USED = _names_of(["memory_used"])
_LOAD = _names_of(["utilization_gpu"])
_TEMPERATURE = _names_of(["temperature_gpu"])
_WARM = 70
"""Degrees Celsius from which a temperature may matter in a list of hosts."""
_SIZES = _names_of(["memory_free", "memory_total", "memory_reserved", "index"])
_FAULTS = _names_of(
    [
        *("xid", "remapped_rows_failure", "remapped_rows_pending", "retired_pages_pending"),
        *("ecc_uncorrected_volatile", "mig_mode"),
    ]
)
_USERS = "|".join((USER_GPUS, USER_MEMORY, USER_IDLE_MEMORY))
_MATCHER = r"""\s*[A-Za-z_]\w*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*"""
_MATCHERS = re.compile(rf"{_MATCHER}(?:,{_MATCHER})*")
_GONE = "1h"
"""How long the name and the values of a host that is down are found."""


class Queries:
    """The questions about the series that a selector narrows.

    Args:
        match: More matchers in PromQL, such as ``job="dcgm"``; empty for all.
    """

    def __init__(self, match: str) -> None:
        self._match = match

    def memory_used(self) -> str:
        """The used memory of each GPU, with all labels: these say who and where it is."""
        return self._select(_MEMORY_USED)

    def sizes(self) -> str:
        """What changes rarely: sizes of memories, and indices."""
        return _largest(self._select(_SIZES), f"__name__,{_GPU}")

    def fleet(self) -> tuple[str, ...]:
        """What the screen of all hosts shows. Each question takes a fraction of a second."""
        hot = self._select(_TEMPERATURE)
        faults = self._select(f"{_FAULTS}|{XID_COUNT}")
        not_ok = self._select(STATUS, ['status!="ok"'])
        driver_down = self._select(DRIVER_UP)
        return (
            # Fewer labels, and only what is notable: Prometheus answers in a third of the time.
            _largest(self._select(f"{_MEMORY_USED}|{_LOAD}"), f"__name__,{_GPU}"),
            f"{hot} >= {_WARM} or {faults} > 0 or {not_ok} or {driver_down} == 0",
            _largest(self._select(STATE), f"__name__,{_GPU},state"),
            _largest(self._select(_USERS), f"__name__,{_HOST},user"),
        )

    def sample_times(self) -> str:
        """When each host was scraped: a plain query has the time of the query itself."""
        return _largest(f"timestamp({self._select(f'{_MEMORY_USED}|{DRIVER_UP}')})", _HOST)

    def past_jobs(self) -> str:
        """The jobs that had GPUs within the last hour."""
        return f"count by (job) (last_over_time({self._select(_MEMORY_USED)}[{_GONE}]))"

    def last_values(self, targets: Collection[tuple[str, str]]) -> str:
        """The few values of targets that are gone, with the times of the samples.

        Args:
            targets: Each a job and an instance.
        """
        names = "|".join((_MEMORY_USED, _LOAD, _TEMPERATURE, _SIZES))
        jobs, instances = zip(*targets, strict=True)
        matchers = [_one_of("job", set(jobs)), _one_of("instance", set(instances))]
        return f"{self._select(names, matchers)}[{_GONE}]"

    def up(self, jobs: Iterable[str]) -> str:
        """Whether the targets of these jobs answer Prometheus."""
        return f"up{{{_one_of('job', jobs)}}}"

    def host(self, label: str, texts: Collection[str]) -> str:
        """All series of one host."""
        return self._select(_ALL_NAMES, [_one_of(label, texts)])

    def _select(self, names: str, more: Iterable[str] = ()) -> str:
        matchers = [f"__name__=~{_quoted(names)}", *more, *filter(None, [self._match])]
        return f"{{{','.join(matchers)}}}"


def _largest(vector: str, labels: str) -> str:
    return f"max by ({labels}) ({vector})"


def _one_of(label: str, texts: Iterable[str]) -> str:
    """A matcher for these values of a label."""
    ordered = sorted(texts)
    if len(ordered) == 1:
        return f"{label}={_quoted(ordered[0])}"
    return f"{label}=~{_quoted('|'.join(map(_literal, ordered)))}"


def _quoted(text: str) -> str:
    """A text of PromQL, which has the escapes of Go."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _literal(text: str) -> str:
    """A text as a regular expression of RE2 that matches it alone."""
    return "".join(sign if sign.isalnum() else f"\\x{{{ord(sign):x}}}" for sign in text)


def read_match(text: str) -> str:
    """Matchers of PromQL, with or without their braces.

    Raises:
        FleetError: They cannot be part of a selector.
    """
    match = text.strip()
    if match.startswith("{") and match.endswith("}"):
        match = match[1:-1]
    match = match.strip().strip(",").strip()
    if not match:
        return ""
    if len(match) > LONGEST_MATCH or not _MATCHERS.fullmatch(match):
        raise FleetError(
            '--match is not a list of labels as in PromQL, such as job="dcgm",cluster=~"a|b"'
        )
    return match
