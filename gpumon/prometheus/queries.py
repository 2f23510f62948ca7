"""What Prometheus is asked, as PromQL."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from gpumon.export.as_prometheus import DRIVER_UP, STATE, STATUS
from gpumon.fleet.fleet import FleetError
from gpumon.prometheus.metric_names import (
    ALL_NAMES,
    USER_GPUS,
    USER_IDLE_MEMORY,
    USER_MEMORY,
    XID_COUNT,
    names_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

LONGEST_MATCH = 1000
_HOST = "Hostname,hostname,instance"
_GPU = f"{_HOST},gpu,UUID,uuid,GPU_I_ID"
_MEMORY_USED = names_of(["memory_used"])
_LOAD = names_of(["utilization_gpu"])
_TEMPERATURE = names_of(["temperature_gpu"])
_WARM = 70
"""Degrees Celsius from which a temperature may matter in a list of hosts."""
_SIZES = names_of(["memory_free", "memory_total", "memory_reserved", "index"])
_FAULTS = names_of(
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
        return self._select(ALL_NAMES, [_one_of(label, texts)])

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
