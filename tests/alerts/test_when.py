"""What ``when`` can be, and the messages for everything else."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.alerts.filter_languages import own_user
from gpumon.alerts.when import (
    EVENT_COOLDOWN,
    STATE_COOLDOWN,
    STATE_NAMES,
    STATES,
    AccidentWhen,
    EndWhen,
    GpuWhen,
    ProcessWhen,
    WhenError,
    XidWhen,
    parse_when,
)
from gpumon.findings.finding import FindingKind
from gpumon.system.system import user_name
from tests.alerts.page import PAGE, with_tables


@pytest.mark.parametrize(
    ("text", "kind", "state", "terms"),
    [
        ("hot", GpuWhen, FindingKind.HOT, ""),
        (" Memory-Errors  gpu:3 ", GpuWhen, FindingKind.MEMORY_ERRORS, "gpu:3"),
        ("gpu:3 and busy_but_empty", GpuWhen, FindingKind.BUSY_EMPTY, "gpu:3"),
        ("ecc", GpuWhen, FindingKind.MEMORY_ERRORS, ""),
        ("idle user:me", GpuWhen, FindingKind.IDLE, "user:me"),
        ("idle process user:me", ProcessWhen, FindingKind.IDLE_PROCESS, "user:me"),
        ("idle>2h and mem>10G", ProcessWhen, None, "idle>2h mem>10G"),
        ("not user:me", ProcessWhen, None, "not user:me"),
        ("user!=ann cmd:a!b", ProcessWhen, None, "user!=ann cmd:a!b"),
        ('name:"a!b  c"  !user:ann', ProcessWhen, None, 'name:"a!b  c"  !user:ann'),
        ("!user:me and !temp>80", GpuWhen, None, "!user:me !temp>80"),
        ('name:"a b or c"', ProcessWhen, None, 'name:"a b or c"'),
        ('"my project"', ProcessWhen, None, '"my project"'),
        ('a!"b"', ProcessWhen, None, 'a!"b"'),
        ('hot a!"b"', GpuWhen, FindingKind.HOT, 'a!"b"'),
        ("gpu:3", ProcessWhen, None, "gpu:3"),
        ("mem>10G util<5", GpuWhen, None, "mem>10G util<5"),
        ("ends 12345", EndWhen, None, "pid:12345"),
        ("ends user:me cmd:train", EndWhen, None, "user:me cmd:train"),
        ("xid 79,48 gpu:0", XidWhen, None, "gpu:0"),
        ("accident", AccidentWhen, None, ""),
        ("Accidents reset,oom user:me", AccidentWhen, None, "user:me"),
    ],
)
def test_states_filters_xids_and_ends_are_told_apart(
    text: str, kind: type, state: FindingKind | None, terms: str
) -> None:
    when = parse_when(text)
    assert type(when) is kind
    assert getattr(when, "state", None) is state
    assert when.terms.text == terms


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write a state such as hot, a filter such as idle>2h mem>10G, xid critical, acc"),
        ("hott", 'no state "hott": did you mean hot? There are lost, reset required, no answer'),
        ("train", "quote it: "),
        ("hot lost", 'no state "hot lost"'),
        ("working", 'no state "working": there are lost, reset required'),
        ("!hot", '"!hot" is not possible: ! stands before a term, as !user:ann'),
        ("utl>5", 'no term "utl": did you mean util? There are age, alloc, cmd'),
        ("mem>10X", 'cannot read "10X": write a number with K, M, G or T, such as 10G'),
        ("hot or lost", "or is not possible: make two alerts"),
        ("hot age>2h", 'no term "age"'),
        ("user:me not", "not what? such as not user:ann"),
        *(
            (text, f'"{text.split()[-1]}" is not possible: write a space before !')
            for text in (
                *("hot!user:ann", "xid!gpu:1", "ends!user:ann", "free!gpu:0", "free!process:x"),
                *("memory errors!user:ann", "hot gpu:0 and!user:ann"),
                *("xid critical!gpu:1", "idle!user:ann", "accident oom!gpu:1"),
            )
        ),
        ('not!hot"a"', '"not!hot"a" is not possible: write a space before !'),
        ("mem!>1G", '"mem!>1G" is not possible: write "!mem>1G"'),
        ("hot Temp!:>=80", '"Temp!:>=80" is not possible: write "!Temp:>=80"'),
        ("idle!>2h", '"idle!>2h" is not possible: write "!idle>2h"'),
        ('x!"ann', "the quote is still open"),
        ('user:me x!user:"ann', "the quote is still open"),
        ("!and user:ann", '"!and" is not possible: ! stands before a term'),
        ("!or user:ann", "or is not possible: make two alerts"),
        ("gpu:0 !idle", '"!idle" is not possible: ! stands before a term'),
        ('user:"ann', "the quote is still open"),
        ("ends", "ends what? Write ends 12345 or ends user:me"),
        ("ends train", 'ends what? "train" is neither a process number nor a filter'),
        ("accident crash", 'no accident "crash": write accident alone, or with timeout, reset'),
        ("accident rest", "did you mean reset?"),
        ("xid crit", 'no XID "crit": did you mean critical? Write numbers such as xid 79,48'),
    ],
)
def test_a_mistake_names_what_is_possible(text: str, message: str) -> None:
    with pytest.raises(WhenError) as wrong:
        parse_when(text)
    assert message in str(wrong.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    try:
        parse_when(text)
    except WhenError as wrong:
        sentence = str(wrong)
    else:
        sentence = "read"
    assert sentence


def test_me_is_who_runs_gpumon() -> None:
    assert own_user() == user_name(os.geteuid())


def test_every_state_that_is_offered_can_be_written() -> None:
    assert FindingKind.XID not in STATES
    for name in (*(kind.value for kind in STATES), *STATE_NAMES):
        assert getattr(parse_when(name), "state", None) is not None


@pytest.mark.parametrize("text", ["xid", "accident", "ends 1", "free"])
def test_events_have_a_shorter_cooldown(text: str) -> None:
    assert parse_when(text).cooldown == EVENT_COOLDOWN


@pytest.mark.parametrize("text", ["hot", "user:me"])
def test_states_have_a_longer_cooldown(text: str) -> None:
    assert parse_when(text).cooldown == STATE_COOLDOWN


def test_the_page_has_every_state_term_and_channel() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page) == page, "python -m tests.alerts.page writes it anew"
