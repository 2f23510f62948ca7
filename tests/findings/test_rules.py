"""A rule that is declared wrongly fails at import, with a sentence that says what to do."""

# ruff: noqa: ARG005 - only the names of the parameters matter
from __future__ import annotations

import functools
import re
import runpy
import types
from collections.abc import Callable
from typing import Any

import pytest

from gpumon.findings import RULES, FindingKind, registry
from gpumon.findings.rule import LastingRule, ProcessRule, Rule, Words

EXPLANATION = RULES[FindingKind.HOT].explanation
SAYS = Words("sentence", "short", "brief")


CONTENT: dict[type, dict[str, Any]] = {
    Rule: {"say": lambda self, history, gpu: SAYS},
    LastingRule: {
        "after": 30.0,
        "holds": lambda self, thresholds, gpu, holding, fan_speed: True,
        "say": lambda self, history, gpu, held, holding, fan_speed: SAYS,
    },
    ProcessRule: {"answer": lambda self, history, process, details=None: False},
}
"""What a class of each base must have, besides a kind and an explanation."""


def declare(base: type = LastingRule, *, without: str = "", **changes: Any) -> type:
    known = {"kind": FindingKind.HOT, "explanation": EXPLANATION, **CONTENT[base], **changes}
    return type("Fan", (base,), {name: known[name] for name in known if name != without})


@pytest.mark.parametrize("base", CONTENT)
def test_a_rule_may_ask_for_all_that_it_is_given(base: type) -> None:
    declare(base)


def test_a_rule_may_ask_for_nothing() -> None:
    declare(holds=lambda self: True, say=lambda self: SAYS)


@pytest.mark.parametrize(
    ("base", "without"),
    [
        *((LastingRule, name) for name in ("explanation", "after", "holds", "say")),
        *((Rule, name) for name in ("explanation", "say")),
        *((ProcessRule, name) for name in ("explanation", "answer")),
    ],
)
def test_a_rule_that_lacks_something_fails_at_once(base: type, without: str) -> None:
    with pytest.raises(TypeError, match=f"^Fan lacks {without}: gpumon/findings/rule.py"):
        declare(base, without=without)


def test_a_rule_with_its_own_answer_needs_no_say() -> None:
    declare(Rule, without="say", answer=lambda self, history, gpu: False)


@pytest.mark.parametrize("base", CONTENT)
@pytest.mark.parametrize("name", ["hysteresys", "other_name", "is_detial"])
def test_an_unknown_attribute_fails_at_once(base: type, name: str) -> None:
    with pytest.raises(TypeError, match=f"^Fan has an unknown attribute {name}: gpumon/findings/"):
        type("Fan", (base,), {name: 5.0})


def test_a_rule_may_have_attributes_of_its_own() -> None:
    declare(_limit=5.0, is_fast=lambda self: True, limit=property(lambda self: 5.0))
    declare(limit=5.0, __annotations__={"limit": "ClassVar[float]"})


@pytest.mark.parametrize("name", ["other_names", "exported_briefs", "assumed"])
def test_a_text_in_place_of_a_tuple_fails_at_once(name: str) -> None:
    with pytest.raises(TypeError, match=rf'^Fan.{name} must be a tuple, such as \("fan",\)$'):
        type("Fan", (LastingRule,), {name: "fan"})


@pytest.mark.parametrize(
    ("holds", "asks"),
    [
        (lambda self, fan_sped: True, "fan_sped"),
        (lambda self, fan_speed, thresholds: True, "fan_speed, thresholds"),
        (lambda self, history, fan_speed: True, "history, fan_speed"),
        (lambda self, gpu, thresholds: True, "gpu, thresholds"),
    ],
)
def test_a_wrong_parameter_of_holds_fails_at_once(holds: Callable[..., bool], asks: str) -> None:
    with pytest.raises(
        TypeError, match=f"thresholds, gpu, holding, in this.*it asks for {re.escape(asks)}$"
    ):
        declare(holds=holds)


@pytest.mark.parametrize(
    ("say", "asks"),
    [
        (lambda self, utilization_gpu, held: SAYS, "utilization_gpu, held"),
        (lambda self, held, history: SAYS, "held, history"),
        (lambda self, held, *, fan_speed: SAYS, "held, *"),
        (lambda self, held, *fan_speed: SAYS, "held, *"),
        (lambda self, held, **fan_speed: SAYS, "held, *"),
        (lambda self, thresholds, held: SAYS, "thresholds, held"),
    ],
)
def test_a_wrong_parameter_of_say_fails_at_once(say: Callable[..., Words], asks: str) -> None:
    with pytest.raises(
        TypeError, match=f"history, gpu, held, holding, in .*it asks for {re.escape(asks)}$"
    ):
        declare(say=say)


@pytest.mark.parametrize(
    ("say", "asks"),
    [
        (lambda self, gpu, history: SAYS, "gpu, history"),
        (lambda self, history, gpu, held: SAYS, "history, gpu, held"),
        (lambda self, history, gpu, *more: SAYS, "history, gpu, *"),
    ],
)
def test_a_rule_that_need_not_last_asks_for_history_and_gpu(
    say: Callable[..., Words], asks: str
) -> None:
    asked = re.escape(asks)
    with pytest.raises(TypeError, match=f"must ask for history, gpu; it asks for {asked}$"):
        declare(Rule, say=say)


def test_a_kind_without_a_listed_class_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.findings.heat", types.ModuleType("heat"))
    with pytest.raises(TypeError, match=r"kind HOT: put it into a module .* registry.py lists"):
        runpy.run_path(registry.__file__)


def test_a_decorated_method_asks_for_what_it_wraps() -> None:
    declare(holds=functools.wraps(lambda self, fan_speed: True)(lambda *args: True))
