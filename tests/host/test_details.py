"""What can be said of one process, on real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.details import LIMIT, is_secret, read_details
from gpumon.host.process_host import Details
from gpumon.model.processes import ProcessId, Workload
from tests import build, lives
from tests.command import run_program
from tests.host import programs
from tests.host.fakes import FakeProc
from tests.host.programs import identity
from tests.known import known
from tests.lives import Family

NOBODY = 65534
FILES = build.device_files()

AS_ANOTHER = """
import msgspec, os, sys
from gpumon.host.details import read_details
from gpumon.model.makers import DeviceFiles
from gpumon.model.processes import ProcessId
import pwd
uid, pid, start_time = map(int, sys.argv[1:])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
files = DeviceFiles("/dev/nvidia{minor}", "/dev/nvidia")
print(msgspec.json.encode(read_details(ProcessId(pid, start_time), files)).decode())
"""


def told(pid: int, device_folder: Path | None = None, place: Workload | None = None) -> Details:
    files = build.device_files(device_folder or "/dev")
    return known(read_details(identity(pid), files, place=place))


def told_of_fake(fake: FakeProc, **facts: Any) -> Details:
    """What is told of process 20 of a fake ``/proc``, which these facts change."""
    return known(read_details(fake.add(20, **facts), FILES, fake.system))


def told_to(uid: int, pid: int) -> Details:
    """What another user is told."""
    process = identity(pid)
    numbers = [str(number) for number in (uid, process.pid, process.start_time)]
    answer = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER, *numbers], capture_output=True, check=True
    )
    return msgspec.json.decode(answer.stdout, type=Details)


def test_a_process_of_ones_own_is_told_in_full(
    family: Family, card: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-zwölf=3")
    process = family.python(programs.PARENT, str(card), "x" * 100_000, cwd=tmp_path)
    details = told(process.pid, tmp_path)
    assert details.command[-2:] == (str(card), "x" * 100_000)
    assert (details.executable, details.cwd) == (os.path.realpath(sys.executable), str(tmp_path))
    assert ("CUDA_VISIBLE_DEVICES", "GPU-zwölf=3") in known(details.environment)
    assert (details.threads, details.devices, details.wait_channel) == (1, (str(card),), None)
    assert details.unreadable == ()
    family_of_it = [relative.id.pid for relative in details.family]
    assert {os.getpid(), process.pid, *lives.children(process.pid)} < set(family_of_it)


def test_a_process_that_ends_while_it_is_asked_is_not_told_half() -> None:
    command = ("sh", "-c", "echo ready")
    for _ in range(50):
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            known(process.stdout).readline()
            started = identity(process.pid)
            details = read_details(started, FILES)
            while details is not None and not details.unreadable:
                assert details.command == command
                assert details.environment
                details = read_details(started, FILES)


def test_a_process_whose_main_thread_died_is_told_through_another(
    family: Family, card: Path
) -> None:
    process = family.python(programs.HOLLOW, str(card))
    details = told(process.pid, card.parent)
    assert (details.state, details.threads) == ("Z", 2)
    assert details.command[-1] == str(card)
    assert (details.executable, details.cwd) == (os.path.realpath(sys.executable), str(Path.cwd()))
    assert details.environment
    assert (details.devices, details.unreadable) == ((str(card),), ())


def test_a_process_that_hangs_says_where_and_is_not_asked_for_its_memory(
    family: Family, card: Path
) -> None:
    pipe = card.parent / "pipe"
    os.mkfifo(pipe)
    process = family.python(programs.HANGING, str(card), str(pipe))
    programs.go_on(process)
    programs.until_state(process.pid, "D")
    details = told(process.pid, card.parent)
    assert (details.state, details.devices) == ("D", (str(card),))
    assert details.wait_channel is None or details.wait_channel.isidentifier()
    assert (details.command, details.environment) == ((), None)
    (sentence,) = details.unreadable
    assert sentence.startswith("It waits inside the kernel: its command and environment are not")


@pytest.mark.parametrize(
    ("channel", "said"), [("nvidia_close", "nvidia_close"), ("0", None), ("", None)]
)
def test_a_wait_channel_is_told_in_state_d_only(
    tmp_path: Path, channel: str, said: str | None
) -> None:
    fake = FakeProc(tmp_path)
    assert told_of_fake(fake, state="D", wait_channel=channel).wait_channel == said
    assert told_of_fake(fake, state="S", wait_channel=channel).wait_channel is None


@pytest.mark.parametrize("state", ["R", "D"])
@pytest.mark.parametrize("environ", [None, b"", b"SEED=1\0"])
def test_a_process_that_is_ending_says_what_is_gone(
    tmp_path: Path, state: str, environ: bytes | None
) -> None:
    fake = FakeProc(tmp_path)
    fake.add(20)
    if environ is not None:
        (fake.root / "20/environ").write_bytes(environ)
    details = told_of_fake(fake, state=state, flags=0x4)
    # The environment was read in the moment before, or it was not asked for.
    assert details.environment == ((("SEED", "1"),) if state == "R" and environ else None)
    assert details.devices is None
    assert details.unreadable == ("It is ending: its command and environment are gone already.",)


WHOLE = Details(
    ProcessId(20, 1),
    command=("python", "x.py"),
    executable="/usr/bin/python",
    cwd="/home/ann",
    environment=(("SEED", "1"),),
    devices=("/dev/nvidia0",),
)
ENDING = Details(WHOLE.id, unreadable=("It is ending.",))
SHOWN = "What it had before is shown."


@pytest.mark.parametrize(
    ("now", "known_then"),
    [
        (ENDING, {**msgspec.structs.asdict(WHOLE), "unreadable": ("It is ending.", SHOWN)}),
        (
            msgspec.structs.replace(WHOLE, environment=None, state="R"),
            {**msgspec.structs.asdict(WHOLE), "state": "R", "unreadable": (SHOWN,)},
        ),
        (msgspec.structs.replace(WHOLE, environment=(), devices=()), None),
        (Details(WHOLE.id, command=("other",), unreadable=("It is readable by root only.",)), None),
    ],
    ids=["ending", "only its environment is lost", "emptied", "another program"],
)
def test_what_cannot_be_read_any_more_is_as_it_was_before(
    now: Details, known_then: dict[str, Any] | None
) -> None:
    assert now.after(WHOLE) == (now if known_then is None else Details(**known_then))
    assert now.after(None) == now
    # Asked again and again, it says so once.
    assert now.after(now.after(WHOLE)) == now.after(WHOLE)


def test_a_zombie_says_that_nothing_is_left() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        details = told(process.pid)
    assert (details.state, details.command, details.environment) == ("Z", (), None)
    assert (details.executable, details.cwd, details.devices) == (None, None, ())
    assert details.unreadable == (
        "It has ended, but its parent has not reaped it yet: nothing else is left of it.",
    )


@pytest.mark.root
@lives.NEEDS_OTHERS
def test_what_belongs_to_another_user_is_not_told_and_that_is_said(
    family: Family, card: Path
) -> None:
    process = family.python(programs.HOLDER, str(card))
    details = told_to(NOBODY, process.pid)
    assert details.command[-1] == str(card)
    assert (details.executable, details.cwd) == (None, None)
    assert (details.environment, details.devices) == (None, None)
    assert details.unreadable == (
        "Its environment, program, working directory and open files are readable by root only.",
    )


@pytest.mark.root
@lives.NEEDS_OTHERS
def test_who_may_read_it_is_named(family: Family) -> None:
    process = family.start("sh", "-c", "echo; read line", user=1)
    (sentence,) = told_to(NOBODY, process.pid).unreadable
    assert sentence.endswith(" are readable by daemon and root only.")


def test_a_place_is_handed_on(family: Family) -> None:
    place = Workload(tmux="train")
    assert told(family.sleeper().pid, place=place).place is place


def test_a_command_of_megabytes_is_cut(tmp_path: Path) -> None:
    details = told_of_fake(FakeProc(tmp_path), command=b"x" * (LIMIT + 10))
    assert [len(part) for part in details.command] == [LIMIT]


def test_an_environment_keeps_its_order_and_passes_over_what_is_none(tmp_path: Path) -> None:
    fake = FakeProc(tmp_path)
    fake.add(20)
    (tmp_path / "20" / "environ").write_bytes(b"B=2\0A=1=1\0a title\0=x\0E=\0\xff=\xff\0")
    odd = "\N{REPLACEMENT CHARACTER}"
    expected = (("B", "2"), ("A", "1=1"), ("E", ""), (odd, odd))
    assert told_of_fake(fake).environment == expected


SECRETS = [
    "HF_TOKEN HUGGING_FACE_HUB_TOKEN WANDB_API_KEY OPENAI_API_KEY AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN GITHUB_PAT GITHUB_TOKEN GH_TOKEN_2 PGPASSWORD MYSQL_PWD",
    "DB_PASSWD SSHPASS RSYNC_PASSWORD VAULT_TOKEN JUPYTERHUB_API_TOKEN JPY_API_TOKEN",
    "JUPYTERHUB_COOKIE_SECRET SENTRY_DSN DATABASE_DSN SLURM_JWT AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_KEY accessToken apiKey my-secret GOOGLE_APPLICATION_CREDENTIALS BASIC_AUTH",
    "KEY1 authtoken SSH_KEY_PASSPHRASE X_APIKEY",
]

PLAIN = [
    "CUDA_DEVICE_ORDER CUDA_VISIBLE_DEVICES CUDA_CACHE_PATH NVIDIA_VISIBLE_DEVICES PATH HOME PWD",
    "OLDPWD KEYBOARD XKB_KEYBOARD XAUTHORITY SSH_AUTH_SOCK SSH_ASKPASS MONKEY COMPASS",
    "TOKENIZERS_PARALLELISM GIT_AUTHOR_NAME BYPASS_CACHE PASSENGER_ROOT DBUS_SESSION_BUS_ADDRESS",
    "WANDB_PROJECT SLURM_JOB_ID PYTHONPATH PIN_MEMORY HOTKEYS_ENABLED PASSWORD_FILE TOKEN_PATH",
    "KEY_LENGTH HF_TOKEN_PATH OMP_PLACES LS_COLORS",
]


def test_a_name_that_says_secret_hides_its_value() -> None:
    assert [name for name in " ".join(SECRETS).split() if not is_secret(name, "hunter2")] == []


def test_a_name_that_only_looks_like_it_hides_nothing() -> None:
    assert [name for name in " ".join(PLAIN).split() if is_secret(name, "hunter2")] == []


@pytest.mark.parametrize(
    "value",
    [
        "https://ann:hunter2@host/path",
        "postgresql+psycopg://ann:p/w@db:5432/runs",
        "redis://:hunter2@cache",
        "https://ghp_16C7e42F292c6912E7@github.com/x.git",
        "Server=db;User Id=ann;Password=hunter2;",
        "host=db password = hunter2",
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abc==",
        "https://store/blob?sig=1&access_token=abc",
        "Authorization: Bearer abc",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    ],
)
def test_a_value_that_carries_a_secret_is_hidden_under_any_name(value: str) -> None:
    assert is_secret("X", value)
    assert is_secret("X", f"before {value} after")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HTTP_PROXY", "https://host:8080/path"),
        ("HTTP_PROXY", "http://localhost:8888/tree?x=1"),
        ("HTTP_PROXY", "git@github.com:a/b"),
        ("HTTP_PROXY", "a:b@c"),
        ("HTTP_PROXY", ""),
        ("MAX_TOKENS", "4096"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("USE_AUTH", "false"),
    ],
)
def test_ordinary_addresses_numbers_and_switches_are_no_secret(name: str, value: str) -> None:
    assert not is_secret(name, value)


def test_a_password_that_is_a_number_is_a_secret() -> None:
    assert is_secret("DB_PASSWORD", "1234")


WORDS = st.lists(st.sampled_from(["MY", "DB", "APP", "V2", "PROD"]), max_size=3)


@given(WORDS, st.sampled_from(["TOKEN", "SECRET", "PASSWORD", "API_KEY", "CREDENTIALS"]), WORDS)
def test_what_stands_around_the_word_changes_nothing(
    before: list[str], word: str, after: list[str]
) -> None:
    name = "_".join([*before, word, *after])
    assert is_secret(name, "hunter2")
    assert is_secret(name.lower(), "hunter2")
    assert not is_secret(name, "")


@given(st.from_regex(r"[a-z]{2,8}", fullmatch=True), st.text(r"abc019_.!$%-", min_size=1))
def test_a_password_in_an_address_is_found(scheme: str, password: str) -> None:
    assert is_secret("X", f"{scheme}://ann:{password}@host/path")


@given(st.text(), st.text())
def test_every_name_and_value_is_judged(name: str, value: str) -> None:
    assert is_secret(name, value) in (True, False)


@pytest.mark.slow
def test_a_long_value_chosen_to_be_slow_is_judged_at_once() -> None:
    parts = ["a", "://a:", "://", "password ", "bearer ", "https://a", "a1.+-"]
    code = "import sys, resource\nfrom gpumon.host.details import is_secret\n"
    code += "resource.setrlimit(resource.RLIMIT_CPU, (10, 10))\n"
    code += "for part in sys.argv[1:]:\n print(repr(part), flush=True)\n"
    code += " is_secret('X', part * (2**18 // len(part)))"
    done = run_program([sys.executable, "-c", code, *parts])
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert done.stdout.splitlines() == [repr(part) for part in parts]
