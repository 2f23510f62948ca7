"""How the sums of a report are added up: each field by its type."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

from gpumon.report.sums import Sum, Sums


def _filled(total: Sum, number: int = 1) -> Any:
    """A sum with another value in each of its fields."""
    for name in total.__struct_fields__:
        value = getattr(total, name)
        number += 1
        if isinstance(value, Sum):
            _filled(value, number)
        elif isinstance(value, Counter):
            value[79] = number
        elif isinstance(value, dict):
            value["heat"] = float(number)
        elif isinstance(value, array):
            value[number] = float(number)
        else:
            setattr(total, name, bool(number) if value is False else number)
    return total


def test_no_field_is_lost_when_sums_are_joined() -> None:
    total = Sums()
    total.join(_filled(Sums()))
    assert total == _filled(Sums())
    total.join(Sums())
    assert total == _filled(Sums())


def test_a_subject_gets_its_share_of_the_energy_and_all_of_the_time() -> None:
    total, whole = Sums(), _filled(Sums())
    total.join(whole, 0.5)
    for name in total.__struct_fields__:
        part = getattr(total, name)
        if hasattr(part, "joules"):
            assert part.joules == getattr(whole, name).joules / 2
            part.joules *= 2
    assert total == whole


def test_the_first_and_last_time_and_the_peak_are_those_of_both() -> None:
    total, other = Sums(first=5.0, last=6.0, ecc=1), Sums(first=4.0, last=5.0, ecc=2)
    total.memory.add(10.0, 1.0)
    other.memory.add(20.0, 3.0)
    total.join(other)
    assert (total.first, total.last, total.ecc) == (4.0, 6.0, 3)
    assert (total.memory.peak, total.memory.mean) == (20.0, 17.5)
