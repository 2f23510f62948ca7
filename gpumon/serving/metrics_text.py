"""Reads what inference servers report: Prometheus' text format, and Ollama's list of models."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpumon.serving.engines import Engine

_MOST_SERIES = 2000
"""Series that are read: beyond these no server is described, and reading takes too long."""
_SERIES_CHARACTERS = 4096
"""Characters of a series that is read: the parser takes time by the square of its labels."""
_MOST_MODELS, _MODEL_CHARACTERS = 8, 200
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")
"""Labels of workers that all report the same of their server."""


class ServerReadings(Struct, frozen=True):
    """What one answer has; counters count since the server's start. ``None`` is not reported."""

    running: float | None = None
    waiting: float | None = None
    requests: float | None = None  # counter
    tokens: float | None = None  # counter
    prompt_tokens: float | None = None  # counter
    kv_cache: float | None = None  # percent
    models: tuple[str, ...] = ()


class AnswerError(Exception):
    """An answer has nothing that is known; the message says why, without a full stop."""


class _Sample(NamedTuple):
    name: str
    labels: Mapping[str, str]
    value: float


def read_metrics(text: str, engine: Engine) -> ServerReadings:
    """What a server reports.

    Of the names that a metric had in different versions the first one that occurs counts. A number
    that no count can be is unknown.

    Raises:
        AnswerError: Nothing known is in it.
    """
    names = engine.metrics
    if names is None:
        raise AnswerError(f"{engine.name} reports no metrics")
    wanted = {
        *names.running,
        *names.waiting,
        *names.requests,
        *names.tokens,
        *names.prompt_tokens,
        *names.kv_cache,
    }
    samples = _samples(text, wanted)
    if not samples:
        raise AnswerError("its answer has none of the metrics that gpumon knows")
    by_name: dict[str, list[_Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)

    def values(of: Sequence[str]) -> list[float]:
        return next((_of_each_worker(by_name[name]) for name in of if name in by_name), [])

    # The fullest cache is the one that makes requests wait.
    kv_cache = max(values(names.kv_cache), default=math.nan) * 100
    return ServerReadings(
        running=_total(values(names.running)),
        waiting=_total(values(names.waiting)),
        requests=_total(values(names.requests)),
        tokens=_total(values(names.tokens)),
        prompt_tokens=_total(values(names.prompt_tokens)),
        kv_cache=kv_cache if 0 <= kv_cache <= 100 else None,
        models=_models(sample.labels.get(names.model_label or "") for sample in samples),
    )


def read_loaded_models(text: str) -> ServerReadings:
    """The models that Ollama has loaded, from the answer of its ``/api/ps``.

    Raises:
        AnswerError: It is no such answer.
    """
    import json

    try:
        models = json.loads(text)["models"]
        return ServerReadings(models=_models(model["name"] for model in models))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AnswerError("its answer is not a list of models") from None


def _samples(text: str, wanted: Iterable[str]) -> list[_Sample]:
    """The samples with these names.

    Raises:
        AnswerError: They cannot be read.
    """
    starts = tuple(f"{name}{mark}" for name in wanted for mark in ("{", " ", "\t"))
    lines = [line for line in text.splitlines() if line.startswith(starts)]
    if not lines:
        # The parser's package takes longer to import than most answers to read.
        return []
    if len(lines) > _MOST_SERIES:
        raise AnswerError(f"its answer has more than {_MOST_SERIES} series")
    if any(len(line) > _SERIES_CHARACTERS for line in lines):
        raise AnswerError(f"its answer has a line of more than {_SERIES_CHARACTERS} characters")
    from prometheus_client.parser import text_string_to_metric_families

    try:
        return [
            _Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families("\n".join([*lines, ""]))
            for sample in family.samples
        ]
    except Exception:  # noqa: BLE001 - the parser raises many kinds of errors for hostile texts
        raise AnswerError("its metrics cannot be read") from None


def _of_each_worker(samples: Iterable[_Sample]) -> list[float]:
    """The values, of workers that report the same only the first."""
    found: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = sorted(pair for pair in sample.labels.items() if pair[0] not in _RANKS)
        found.setdefault(tuple(labels), sample.value)
    return list(found.values())


def _total(values: Sequence[float]) -> float | None:
    """Their sum; ``None`` without any, or if one is no number from 0 to 10^15."""
    return sum(values) if values and all(0 <= value <= 1e15 for value in values) else None


def _models(names: Iterable[object]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        if isinstance(name, str) and name and len(found) < _MOST_MODELS:
            # JSON may have halves of characters, which no file and no terminal takes.
            text = name[:_MODEL_CHARACTERS].encode("utf-8", "replace").decode()
            found[text] = None
    return tuple(found)
