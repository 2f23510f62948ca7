"""Where gpumon's own files are, and whether they do."""

from __future__ import annotations

import os

import pytest

from gpumon.doctor import own
from gpumon.makers import machine
from tests.doctor.trees import PASS, WARN, Tree, expect, verdict, words


def test_a_state_folder_that_cannot_be_written_is_told(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tree.write("/home/ann/state")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    expect(own.state(tree.case()), WARN, "XDG_STATE_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tree.path("/home/ann/not-yet")))
    assert verdict(own.state(tree.case())) is PASS
    # Root may write everywhere: what the kernel says to others is put in its mouth.
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert verdict(own.state(tree.case())) is WARN


def test_a_configuration_is_named_and_what_is_wrong_with_it_told(tree: Tree) -> None:
    case = tree.case(environ={"XDG_CONFIG_HOME": str(tree.path("/home/ann/.config"))})
    assert "the defaults apply" in words(own.configuration(case))
    tree.write("/home/ann/.config/gpumon/config.toml", "")
    assert "is valid" in words(own.configuration(case))
    tree.write("/home/ann/.config/gpumon/config.toml", "intervall = 3\n")
    expect(own.configuration(case), WARN, "intervall")


def test_a_folder_of_locks_is_looked_at_and_not_made(tree: Tree) -> None:
    folder = tree.path("/run/locks")
    case = tree.case(environ={"GPUMON_LOCK_DIR": str(folder)})
    assert "when it needs it" in words(own.locks(case))
    assert not folder.exists()
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    assert "All users share" in words(own.locks(case))
    folder.chmod(0o777)
    expect(own.locks(case), WARN, "not sticky")
    folder.chmod(0o755)
    expect(own.locks(case), WARN, "not writable by everybody")


def test_doctor_names_the_same_versions(tree: Tree) -> None:
    assert words(own.version(tree.case())).startswith(f"{', '.join(machine.software())} in ")
