"""Lists of hosts: what they stand for, and what is refused in a sentence."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.allocations.job_hosts import JobHosts
from gpumon.fleet.fleet import FleetError
from gpumon.fleet.host_names import MOST_HOSTS, HostList, read_host_list, read_hosts
from gpumon.text.formatting import printable
from tests.absent import ABSENT


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu-01", ("gpu-01",)),
        ("gpu-01, ann@box,,gpu-01", ("gpu-01", "ann@box")),
        ("gpu-[08-11]", ("gpu-08", "gpu-09", "gpu-10", "gpu-11")),
        ("gpu-[8-10,12]", ("gpu-8", "gpu-9", "gpu-10", "gpu-12")),
        ("r[1-2]n[01-02].lab", ("r1n01.lab", "r1n02.lab", "r2n01.lab", "r2n02.lab")),
        ("ssh://ann@box:2222,::1", ("ssh://ann@box:2222", "::1")),
        ("group:lab,x", ("a1", "a2", "x")),
        ("group:all", ("a1", "a2", "b")),
    ],
)
def test_a_list_stands_for_its_hosts_each_once(text: str, hosts: tuple[str, ...]) -> None:
    assert read_hosts(text, {"lab": "a[1-2]", "office": "b,a1"}) == hosts


def test_a_file_has_a_name_on_each_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# ours\n\ngpu-[01-02]  # the old ones\r\nann@box\n")
    assert read_hosts(f"@{path},last") == ("gpu-01", "gpu-02", "ann@box", "last")
    assert read_hosts("group:lab", {"lab": f"@{path}"})[0] == "gpu-01"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no name"),
        (" , ", "no name"),
        ("-oProxyCommand=sh", "option"),
        ("a,-F/tmp/x", "option"),
        ("a b", "blanks"),
        ("a\x1b[2Jb", "invisible"),
        ("a\nb", "invisible"),
        ("a;reboot", "character ;"),
        ("$(reboot)", "character"),
        ("ann@", "names no host"),
        ("x" * 400, "320 characters"),
        ("gpu-[1-]", "no range"),
        ("gpu-[a-b]", "no range"),
        ("gpu-[9-1]", "backwards: write [1-9]"),
        ("gpu-[0-99999999]", "more than 1,000"),
        ("[0-999][0-999][0-999][0-999][0-999][0-999]", "more than 1,000"),
        ("a[1-600],b[1-600]", "more than 1,000"),
        ("group:lab", "no groups"),
        ("group:all", "[hosts]"),
        (f"@{ABSENT}/hosts", "No such file"),
    ],
)
def test_what_is_no_list_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(FleetError) as refused:
        read_hosts(text)
    sentence = str(refused.value)
    assert said in sentence
    assert sentence == printable(sentence)
    assert len(sentence) < 300


def test_a_thousand_hosts_are_not_too_many() -> None:
    assert len(read_hosts("gpu-[0000-0999]")) == MOST_HOSTS


def test_groups_are_not_nested_and_a_wrong_one_names_those_that_are_there() -> None:
    with pytest.raises(FleetError, match="cannot be nested"):
        read_hosts("group:a", {"a": "group:b", "b": "x"})
    with pytest.raises(FleetError, match="there are a, b and all"):
        read_hosts("group:c", {"a": "x", "b": "y"})


def test_a_file_names_no_other_file_and_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text(f"a\n@{path}\n")
    with pytest.raises(FleetError, match="line 2"):
        read_hosts(f"@{path}")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FleetError, match="is not a regular file"):
        read_hosts(f"@{tmp_path}/pipe")
    (tmp_path / "huge").write_bytes(b"a\n" * 2**20)
    with pytest.raises(FleetError, match="1 MiB"):
        read_hosts(f"@{tmp_path}/huge")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FleetError, match="UTF-8"):
        read_hosts(f"@{tmp_path}/binary")


def jobs(number: str) -> JobHosts:
    """What a Slurm knows of two jobs."""
    hosts = {"5": ("a1", "a2"), "6": ("a2", "a3"), "7": ("-oProxyCommand=sh",)}
    return JobHosts(frozenset({number, f"{number}_0"}), hosts[number])


def test_a_job_stands_for_its_hosts_and_is_remembered_for_those_not_named() -> None:
    read = read_host_list("slurm:5, slurm:6,a1,b,slurm:5", None, jobs)
    assert read == HostList(
        ("a1", "a2", "a3", "b"),
        ("5", "6"),
        {"a2": frozenset({"5", "5_0", "6", "6_0"}), "a3": frozenset({"6", "6_0"})},
    )


def test_a_host_of_a_job_is_checked_as_every_other() -> None:
    with pytest.raises(FleetError, match="take it for an option"):
        read_host_list("slurm:7", None, jobs)
    with pytest.raises(FleetError, match="more than 1,000"):
        read_host_list(
            "slurm:8", None, lambda _: JobHosts(frozenset(), tuple(map(str, range(1001))))
        )


def test_a_job_is_named_in_the_list_itself(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("slurm:5\n")
    for text in (f"@{path}", "group:lab"):
        with pytest.raises(FleetError, match="a job is named in the list itself"):
            read_host_list(text, {"lab": "slurm:5"}, jobs)
    with pytest.raises(FleetError, match="--hosts takes jobs"):
        read_hosts("slurm:5")
    with pytest.raises(FleetError, match="is not a Slurm job number"):
        read_host_list("slurm:\x1b[2J")


@given(st.text(alphabet="abc019-[],:@%/ \x1b\n-", max_size=40))
def test_no_text_gives_a_name_that_ssh_takes_for_an_option(text: str) -> None:
    began = time.monotonic()
    hosts: tuple[str, ...] = ("refused",)
    with suppress(FleetError):
        hosts = read_hosts(text.replace("@", "a@"))
    assert 0 < len(hosts) <= MOST_HOSTS
    assert not any(host.startswith("-") or printable(host) != host for host in hosts)
    assert time.monotonic() - began < 60
