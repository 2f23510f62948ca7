"""Slurm's lists of hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.allocations.slurm_output import expand_hosts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu-[01-02,07],login", ["gpu-01", "gpu-02", "gpu-07", "login"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[008-010]", ["n008", "n009", "n010"]),
        ("r[1-2]n[3-4].x", ["r1n3.x", "r1n4.x", "r2n3.x", "r2n4.x"]),
        ("n[1-65537]", None),
        ("n[1-300]x[1-300]", None),
        ("n[1-60000],m[1-60000]", None),
        pytest.param("a," * 70_000 + "a", None, id="many names"),
        ("n[1-999999999]", None),
        pytest.param("n[1-" + "9" * 5000 + "]", None, id="long number"),
        ("n[2-1]", None),
        ("n[1", None),
        ("n1]", None),
        ("n]1[", None),
        ("n[[1]]", None),
        ("n[]", None),
        ("n[1-2-3]", None),
        ("n[a]", None),
        ("n[٣]", None),
        ("a,,b", None),
        ("(null)", None),
        ("a b", None),
        pytest.param("a" * 254, None, id="long name"),
        pytest.param("a" * 2**25, None, id="very long name"),
    ],
)
def test_expand_hosts(hosts: str, expected: list[str] | None) -> None:
    assert expand_hosts(hosts) == expected


@given(st.text("n[]0-9,("), st.integers(0, 20))
def test_expanded_hosts_are_never_more(hosts: str, most: int) -> None:
    assert len(expand_hosts(hosts, most) or ()) <= most
