"""A rule that is declared wrongly fails at import, with a sentence that says what to do."""

# ruff: noqa: ARG005 - only the names of the parameters matter
from __future__ import annotations

import types
from typing import TYPE_CHECKING

import pytest

from gpumon.findings import RULES, FindingKind, registry
from gpumon.findings.rule import LastingRule, Rule, Words

if TYPE_CHECKING:
    from collections.abc import Callable

EXPLANATION = RULES[FindingKind.HOT].explanation
SAYS = Words("sentence", "short", "brief")


def declare(
    base: type[Rule] = LastingRule,
    *,
    without: str = "",
    holds: Callable[..., bool] = lambda self, thresholds, gpu, holding, fan_speed: True,
    say: Callable[..., Words] = lambda self, history, gpu, held, holding, fan_speed: SAYS,
) -> type:
    content = {
        "kind": FindingKind.HOT,
        "explanation": EXPLANATION,
        "after": 30.0,
        "holds": holds,
        "say": say,
    }
    content.pop(without, None)
    return type("Fan", (base,), content)


def test_a_rule_may_ask_for_all_that_it_is_given() -> None:
    declare()
    declare(holds=lambda self: True, say=lambda self: SAYS)


@pytest.mark.parametrize("without", ["explanation", "after", "holds", "say"])
def test_a_rule_that_lacks_something_fails_at_once(without: str) -> None:
    with pytest.raises(TypeError, match=f"^Fan lacks {without}: gpumon/findings/rule.py"):
        declare(without=without)


def test_an_explanation_is_required_of_every_rule() -> None:
    with pytest.raises(TypeError, match="Fan lacks explanation"):
        declare(Rule, without="explanation")


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
    with pytest.raises(TypeError, match=f"thresholds, gpu, holding, in this.*it asks for {asks}$"):
        declare(holds=holds)


@pytest.mark.parametrize(
    ("say", "asks"),
    [
        (lambda self, utilization_gpu, held: SAYS, "utilization_gpu, held"),
        (lambda self, held, history: SAYS, "held, history"),
        (lambda self, held, *, fan_speed: SAYS, "held, fan_speed"),
        (lambda self, thresholds, held: SAYS, "thresholds, held"),
    ],
)
def test_a_wrong_parameter_of_say_fails_at_once(say: Callable[..., Words], asks: str) -> None:
    with pytest.raises(TypeError, match=f"history, gpu, held, holding, in .*it asks for {asks}$"):
        declare(say=say)


def test_a_kind_without_a_listed_class_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "heat", types.ModuleType("heat"))
    with pytest.raises(TypeError, match=r"kind HOT: put it into a module .* registry.py lists"):
        registry._rules()
