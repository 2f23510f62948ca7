"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gpumon.system.system import user_name
from tests import lives
from tests.absent import ABSENT
from tests.screen import PATIENCE

# The programs that tests start get the environment of an ordinary user, whoever runs the tests:
# PYTHONUNBUFFERED, for one, hides every mistake with buffered output.
_KEPT = {
    *("HOME", "PATH", "TMPDIR"),
    "LD_LIBRARY_PATH",  # some Pythons start only with it
    *("CI", "EVERY_CODE"),  # what these tests and their tools are told
}
for name in set(os.environ) - _KEPT:
    if not name.startswith(("FUZZ_", "PYTEST_")):
        del os.environ[name]
os.environ |= {
    "LANG": "C.UTF-8",
    "TERM": "xterm-256color",
    "XDG_CONFIG_HOME": ABSENT,
    "SHELL": "/bin/sh",
}

# A busy machine is no failure; and what CI finds, everybody must find again.
settings.register_profile(
    "here", deadline=None, max_examples=int(os.environ.get("FUZZ_EXAMPLES", "50"))
)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("ci" if os.environ.get("CI") else "here")

# Under nohup or in the background of a script some are ignored, and so they would be in all that
# the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

# Collecting makes a million objects that all stay, and the garbage collector would look at them at
# every step of every test: with a screen that was a quarter of the time.
gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector see only what comes after the collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what takes root, such as a process of another user, where this is an ordinary user."""
    if os.geteuid() == 0:
        return
    for item in items:
        if item.get_closest_marker("root") is not None:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_configure(config: pytest.Config) -> None:
    """In a fresh clone, compile the tests once and on every core: each worker would compile all."""
    if sys.dont_write_bytecode or not config.getoption("numprocesses", None):
        return
    here = Path(__file__).parent
    files = sorted(here.rglob("*.py"), key=lambda file: file.stat().st_size)
    if all((file.parent / "__pycache__").is_dir() for file in files):
        return
    names = [".".join(file.relative_to(here.parent).with_suffix("").parts) for file in files]
    cores = len(os.sched_getaffinity(0))
    children = []
    for core in range(cores):
        child = os.fork()
        if child == 0:
            warnings.simplefilter("ignore")
            for name in names[core::cores]:
                # What is wrong with a test file, its collection says.
                with contextlib.suppress(BaseException):
                    importlib.import_module(name.removesuffix(".__init__"))
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


@pytest.fixture(autouse=True, scope="session")
def _nothing_there() -> Iterator[None]:
    """Nothing that the tests start makes what they take for absent."""
    yield
    assert not Path(ABSENT).exists()


@pytest.fixture(autouse=True, scope="session")
def _locks_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The reservations of this machine are neither read nor changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUMON_LOCK_DIR", str(tmp_path_factory.mktemp("locks") / "shared"))
        yield


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Names of folders, none of which is there: with thousands in one, each would take longer."""
    folder = tmp_path_factory.mktemp("states")
    return (str(folder / str(number)) for number in itertools.count())


@pytest.fixture(autouse=True)
def _state_of_its_own(_states: Iterator[str]) -> Iterator[None]:
    """What gpumon remembers from another test, or for somebody, is neither read nor changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", next(_states))
        yield


@pytest.fixture
def fresh_user_names() -> Iterator[None]:
    """No name of a user is known from another test, nor is one of this test known later."""
    user_name.cache_clear()
    yield
    user_name.cache_clear()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An inference server that a busy machine keeps from answering for a second is no failure."""
    from gpumon.serving import client

    monkeypatch.setattr(client, "PATIENCE", PATIENCE)


@pytest.fixture
def family() -> Iterator[lives.Family]:
    """Real processes that are gone after the test."""
    with lives.family() as started:
        yield started


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time zone is UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()
