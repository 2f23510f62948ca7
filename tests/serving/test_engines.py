"""The table of inference servers is whole: each can be asked, and none is mistaken for another."""

from __future__ import annotations

import pytest

from gpumon.serving import ENGINES
from gpumon.serving.engines import Engine, MetricNames
from gpumon.serving.recognition import engine_of
from tests.serving.page import PAGE, with_servers

every_engine = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


@every_engine
def test_a_server_that_is_asked_has_a_place_and_metrics(engine: Engine) -> None:
    if engine.metrics_path is None:
        assert (engine.metrics, engine.metrics_option) == (None, None)
    else:
        assert engine.metrics_path.startswith("/")
        assert engine.default_port is not None
        # Ollama answers with a list of models instead.
        assert (engine.metrics is None) == (engine.key == "ollama")


def test_a_get_that_costs_a_server_its_statistics_is_never_sent() -> None:
    assert ENGINES["tensorrt-llm"].metrics_path == "/prometheus/metrics"


@every_engine
def test_a_server_whose_rest_is_judged_by_its_requests_reports_them(engine: Engine) -> None:
    if engine.metrics is not None and engine.metrics.running:
        assert engine.metrics.requests or engine.metrics.tokens


@every_engine
def test_a_name_means_one_thing(engine: Engine) -> None:
    metrics = engine.metrics or MetricNames()
    names = [*metrics.running, *metrics.waiting, *metrics.requests]
    names += [*metrics.tokens, *metrics.prompt_tokens, *metrics.kv_cache]
    assert len(names) == len(set(names))


@every_engine
def test_a_default_is_declared_for_a_setting_only(engine: Engine) -> None:
    if engine.memory_setting is None:
        assert (engine.memory_share, engine.memory_default) == (None, "")
        assert engine.commands.memory == ()
    else:
        assert engine.memory_setting in engine.commands.memory
        assert engine.memory_default
    assert engine.memory_share is None or 0 < engine.memory_share <= 1


@every_engine
def test_each_declared_command_is_recognised_as_its_own(engine: Engine) -> None:
    for program in engine.commands.programs:
        words = program.split()
        assert engine_of(words) == engine.key
        assert engine_of(["/usr/bin/python3", "-m", *words]) == engine.key
    for title in engine.commands.titles:
        assert engine_of([f"{title}X"]) == engine.key


def test_workers_are_engines_that_are_known() -> None:
    for engine in ENGINES.values():
        assert set(engine.workers) <= set(ENGINES) - {engine.key}


def test_the_page_lists_the_servers_that_are_known() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_servers(page) == page, "run: python -m tests.serving.page"
