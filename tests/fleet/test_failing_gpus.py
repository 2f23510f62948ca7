"""A host with only nvidia-smi, of which a GPU fails: it is listed, the others keep their values."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.fleet import connection
from gpumon.fleet.nvidia_smi import SmiReader, query_loop
from gpumon.fleet.ssh import SshClient
from gpumon.model.snapshot import Gpu, GpuStatus, Snapshot, Unknown
from tests.command import write_program
from tests.driver import GIB, owners
from tests.fleet.conftest import reading, state, wait_for
from tests.known import known

FIELDS = (
    *("timestamp", "index", "uuid", "name", "pci.bus_id", "driver_version", "memory.total [MiB]"),
    *("memory.used [MiB]", "utilization.gpu [%]", "temperature.gpu", "power.draw [W]"),
    *("clocks.current.sm [MHz]", "pstate"),
)
NAMES = [field.partition(" ")[0] for field in FIELDS]
HEADING = ", ".join(FIELDS)
_UUID = "GPU-00000000-1111-2222-3333-444444444444"
UNREADABLE = "Unable to determine the device handle for GPU"
LOST, OK = GpuStatus.LOST, GpuStatus.OK


def row(
    index: int,
    *,
    at: int | None = None,
    name: str = "NVIDIA A40",
    words: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A row; ``at`` is the GPU's number on the bus."""
    number = index if at is None else at
    cells = (
        *("2026/11/26 18:00:00.123", str(index), f"GPU-{number}", name),
        *(f"00000000:{number + 1:02X}:00.0", "580.95.05", "49140"),
        *("6", "0", "30", "25.02", "210", "P8"),
    )
    return ", ".join({**dict(zip(NAMES, cells, strict=True)), **words}.values())


def all_words(word: str) -> str:
    """A row that has nothing but a word."""
    return ", ".join([f"[{word}]"] * len(FIELDS))


def dead(index: int, word: str, keeps: Sequence[str] = ()) -> str:
    """A row whose GPU can be told, and that has nothing else, or nothing but these columns."""
    moving = ("memory.used", "utilization.gpu", "temperature.gpu", "power.draw")
    lost = [name for name in (*moving, "clocks.current.sm", "pstate") if name not in keeps]
    return row(index, words=dict.fromkeys(lost, f"[{word}]"))


class Case(NamedTuple):
    """What nvidia-smi writes, and the statuses of the GPUs by index."""

    lines: Sequence[str]
    statuses: Mapping[int, GpuStatus] = MappingProxyType({0: OK, 1: LOST, 2: OK})
    errors: str = ""


UNREADABLE_1 = f"{UNREADABLE}1: 0000:02:00.0: Unknown Error"
SECOND = f"{UNREADABLE} 0000:02:00.0: Unknown Error"
GLUED = f"{UNREADABLE}0000:02:00.0: Unknown Error"
WORDS = all_words("Unknown Error")
THIRD_LOST = {0: OK, 1: OK, 2: LOST}

CASES = {
    "in the middle": Case([HEADING, row(0), GLUED, row(2)]),
    "a row of words": Case([HEADING, row(0), GLUED, WORDS, row(2)]),
    "a row of words alone": Case([HEADING, row(0), WORDS, row(2)]),
    "before the heading": Case([UNREADABLE_1, HEADING, row(0), row(2)]),
    "on standard error": Case([HEADING, row(0), row(2)], errors=UNREADABLE_1),
    "on both": Case([HEADING, row(0), SECOND, row(2)], errors=UNREADABLE_1),
    "the gap alone": Case([HEADING, row(0), row(2)]),
    "first": Case(
        [f"{UNREADABLE} 0000:01:00.0: GPU is lost.  Reboot the system", HEADING, row(1), row(2)],
        {0: LOST, 1: OK, 2: OK},
    ),
    "last": Case([HEADING, row(0), row(1), f"{UNREADABLE} 000:03:00.0: Not Found"], THIRD_LOST),
    "last, by its index": Case(
        [HEADING, row(0), row(1), f"{UNREADABLE}2: Unknown Error"], THIRD_LOST
    ),
    "without a name": Case([HEADING, row(0), row(1), f"{UNREADABLE}: Unknown Error"], THIRD_LOST),
    "without a name, and a row of words": Case(
        [HEADING, row(0), f"{UNREADABLE}: Unknown Error", WORDS, row(2)]
    ),
    "nothing but the second GPU": Case([UNREADABLE_1], {0: GpuStatus.NO_ANSWER, 1: LOST}),
    "ERR!": Case([HEADING, row(0), ", ".join(["ERR!"] * len(FIELDS)), row(2)]),
    "the only GPU": Case([f"{UNREADABLE} 0000:01:00.0: Unknown Error"], {0: LOST}),
    "the only GPU, below a heading": Case(
        [HEADING, f"{UNREADABLE} 0000:01:00.0: Unknown Error"], {0: LOST}
    ),
    "two": Case(
        [HEADING, row(0), f"{UNREADABLE} 0000:03:00.0: Unknown Error", SECOND, row(3)],
        {0: OK, 1: LOST, 2: LOST, 3: OK},
    ),
    "not counted": Case([HEADING, SECOND, row(0), row(1, at=2)], THIRD_LOST),
    "needs a reset": Case(
        [HEADING, row(0), dead(1, "GPU requires reset"), row(2)],
        {0: OK, 1: GpuStatus.RESET_REQUIRED, 2: OK},
    ),
    "a row that needs a reset": Case(
        [HEADING, row(0), all_words("GPU requires reset"), row(2)],
        {0: OK, 1: GpuStatus.RESET_REQUIRED, 2: OK},
    ),
    "is lost": Case([HEADING, row(0), dead(1, "GPU is lost"), row(2)]),
    "all fails": Case([HEADING, row(0), dead(1, "Unknown Error"), row(2)]),
    "most fails": Case(
        [HEADING, row(0), dead(1, "Unknown Error", keeps=("temperature.gpu",)), row(2)],
        {0: OK, 1: GpuStatus.FAILING, 2: OK},
    ),
    "no permission": Case(
        [HEADING, row(0), f"{UNREADABLE} 0000:02:00.0: Insufficient Permissions", row(2)],
        {0: OK, 1: GpuStatus.NO_PERMISSION, 2: OK},
    ),
    "a cut row": Case([HEADING, row(0), row(1)[:34], row(2)], dict.fromkeys(range(3), OK)),
}
BOTH = Case([HEADING, row(0), row(1)])


def feed(reader: SmiReader, case: Case, processes: str = "", status: int = 0) -> Snapshot:
    """The snapshot of what nvidia-smi wrote."""
    gpus = "\r\n".join(("", *case.lines, ""))
    listed = f"#processes\n{processes}\n#status {status}\n#owners\n#end\n"
    sections = f"#gpus\n{gpus}\n#errors\n{case.errors}\n{listed}"
    fields = f"#fields {','.join(NAMES)}\n"
    (snapshot,) = reader.feed((fields + sections).encode())
    return snapshot


def read(*lines: str) -> Snapshot:
    """The snapshot of a host that has only just begun."""
    return feed(SmiReader("box"), Case(lines))


def statuses(snapshot: Snapshot) -> dict[int, GpuStatus]:
    assert len({gpu.index for gpu in snapshot.gpus}) == len(snapshot.gpus)
    return {gpu.index: gpu.status for gpu in snapshot.gpus}


def is_whole(gpu: Gpu) -> bool:
    values = (gpu.memory_total, gpu.power_draw, gpu.clock_sm, gpu.pstate, gpu.utilization_gpu)
    return values == (49140 * 2**20, 25.02, 210, 8, 0)


@pytest.mark.parametrize("name", CASES)
def test_a_failing_gpu_is_listed_and_the_others_keep_their_values(name: str) -> None:
    case = CASES[name]
    snapshot = feed(SmiReader("box"), case)
    assert statuses(snapshot) == case.statuses, snapshot.trouble
    cut = 1 if name == "a cut row" else -1
    for gpu in snapshot.gpus:
        if gpu.status is OK and gpu.index != cut:
            assert is_whole(gpu)
        else:
            assert (gpu.memory_used, gpu.power_draw) == (None, None)
            assert gpu.unknown["power_draw"] is not Unknown.NOT_SUPPORTED


@pytest.mark.parametrize("name", [name for name in CASES if name != "not counted"])
def test_a_gpu_that_fails_keeps_its_identity(name: str) -> None:
    reader = SmiReader("box")
    indices = CASES[name].statuses
    whole = Case([HEADING, *map(row, indices)])
    feed(reader, whole)
    snapshot = feed(reader, CASES[name])
    assert statuses(snapshot) == indices
    assert [(gpu.uuid, gpu.name) for gpu in snapshot.gpus] == [
        (f"GPU-{index}", "NVIDIA A40") for index in indices
    ]
    assert all(is_whole(gpu) for gpu in feed(reader, whole).gpus)


@pytest.mark.parametrize(
    "lines",
    [
        ["WARNING: infoROM is corrupted at gpu 0000:02:00.0", HEADING, row(0), row(1)],
        [HEADING, "WARNING: infoROM is corrupted at gpu 0000:02:00.0", row(0), row(1)],
        [HEADING, row(0), row(1), "WARNING: infoROM is corrupted at gpu 0000:02:00.0"],
        ["*** GPU node 17: maintenance on 2026/12/01, at noon ***", HEADING, "", row(0), row(1)],
        [HEADING, row(0), HEADING, row(1), HEADING],
        [HEADING, row(0), row(1), row(0), row(1)],
        [HEADING[:90], row(0), row(1)],
        [HEADING, f"WARNING: persistence mode is off{row(0)}", row(1)],
        [HEADING, f"{row(0)[:30]}{row(0)}", row(1)],
        [HEADING, row(0, name='NVIDIA A40, "rev. 2", custom'), row(1)],
        [HEADING, row(0), row(1, words={"index": "[Unknown Error]"})],
        [HEADING, *(row(index, words={"index": "[N/A]"}) for index in range(2))],
        [HEADING, *(row(0, at=number) for number in range(2))],
        [HEADING, *(row(number, words={"uuid": "GPU-0"}) for number in range(2))],
        [HEADING, row(0), row(1, words={"index": ""})],
        [HEADING, row(0), row(1, words={"index": "-1"})],
        [HEADING, row(0), row(1, words={"index": "4294967295"})],
        [HEADING, row(0, words={"power.draw": "25,02"}), row(1, words={"power.draw": "25,02"})],
        [HEADING, *(row(index, words={"timestamp": "Fr 27. Nov 2026"}) for index in range(2))],
        [HEADING, row(0), row(1, words={"timestamp": "26.11.2026 18:00:00,123"})],
    ],
)
def test_odd_lines_change_no_gpu(lines: list[str]) -> None:
    snapshot = read(*lines)
    assert statuses(snapshot) == {0: OK, 1: OK}
    assert all(is_whole(gpu) for gpu in snapshot.gpus)


@pytest.mark.parametrize(("kernel", "user"), [("6.1.0-44-amd64", "ann"), ("5.15-microsoft", None)])
def test_a_pid_of_wsl_is_of_the_named_process_or_nobodys(kernel: str, user: str | None) -> None:
    reader = SmiReader("box")
    reader.feed(f"#kernel {kernel}\n".encode())
    gpus = f"#gpus\n{HEADING}\n{row(0)}\n#processes\nGPU-0, 7, 5, /Xwayland\n"
    (snapshot,) = reader.feed(f"{gpus}#owners\n7 1000 ann 60 R bash -l\n#end\n".encode())
    assert [process.user for process in snapshot.processes] == [user]


ROWS = st.dictionaries(
    st.sampled_from(("timestamp", "index", "uuid", "pci.bus_id", "memory.used")),
    st.sampled_from(("[Unknown Error]", "[N/A]", "", "-1", "0", "1", "999", "GPU-1", "25,02", '"')),
    max_size=3,
)


@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(0, 200))
def test_each_gpu_is_listed_once_with_its_own_number(words: list[dict[str, str]], cut: int) -> None:
    first, *others = (row(index, words=cells) for index, cells in enumerate(words))
    reader = SmiReader("box")
    for lines in ([first[:cut], *others], [*others, first]):
        gpus = feed(reader, Case([HEADING, *lines])).gpus
        assert len({gpu.index for gpu in gpus}) == len({gpu.uuid for gpu in gpus}) == len(gpus)


def test_text_behind_a_row_costs_its_last_value_only() -> None:
    warned = f"{row(0)} WARNING: persistence mode, which is off, is better on"
    first, second = read(HEADING, warned, row(1)).gpus
    assert (first.memory_total, first.power_draw, first.clock_sm) == (49140 * 2**20, 25.02, 210)
    assert first.pstate is None
    assert is_whole(second)


@pytest.mark.slow
def test_gpus_without_number_are_not_remembered_without_bound() -> None:
    reader = SmiReader("box")
    for number in range(300):
        unnumbered = row(0, at=number % 200, words={"uuid": f"G{number}"})
        snapshot = feed(reader, Case([HEADING, unnumbered]))
    assert len(snapshot.gpus) <= 257


def test_the_error_is_told_and_not_the_greeting() -> None:
    error = "NVIDIA-SMI has failed because it could not talk to the driver."
    assert known(read("Welcome to box", error).trouble).sentence == error


def test_a_row_that_cannot_be_read_is_no_lost_gpu() -> None:
    line = row(0, words={"uuid": _UUID})
    snapshot = read(*(text.replace(", ", ";") for text in (HEADING, line)))
    assert snapshot.gpus == ()
    assert snapshot.trouble is not None


def test_a_row_of_values_without_a_name_is_a_gpu() -> None:
    names = dict.fromkeys(("index", "uuid", "pci.bus_id"), "[N/A]")
    (gpu,) = read(HEADING, row(0, words=names)).gpus
    assert (gpu.index, gpu.status) == (0, OK)
    assert is_whole(gpu)


def test_a_gpu_that_is_no_longer_listed_does_not_answer() -> None:
    reader = SmiReader("box")
    feed(reader, BOTH)
    # An older nvidia-smi ends at the first GPU that fails.
    case = Case([f"{UNREADABLE} 0000:01:00.0: GPU is lost."])
    assert statuses(feed(reader, case)) == {0: LOST, 1: GpuStatus.NO_ANSWER}
    since = [gpu.status_since for gpu in feed(reader, case).gpus]
    assert since == [gpu.status_since for gpu in feed(reader, case).gpus]
    assert None not in since
    # Another GPU in its place is not the one that was lost.
    case = Case([HEADING, row(0, words={"uuid": "GPU-new"}), row(1)])
    assert [gpu.uuid for gpu in feed(reader, case).gpus] == ["GPU-new", "GPU-1"]


def test_odd_lines_lose_no_process_of_others() -> None:
    lines = (
        "WARNING: infoROM is corrupted at gpu 0000:02:00.0",
        "GPU-0, 7, 512, python, train.py\r",
        "",
        "GPU-0, 0, 1, [Not Found]",
        "GPU-0,8,[N/A],[Not Found]",
        "GPU-1, [Insufficient Permissions], [Insufficient Permissions], [Not Found]",
        "GPU-1, 99",
        "GPU-1, 9, 12",
        "GPU-9, 10, 12, x",
        "No running processes found",
    )
    snapshot = feed(SmiReader("box"), BOTH, "\n".join(lines))
    assert {one.id.pid: (one.gpu_indices, one.memory_used) for one in snapshot.processes} == {
        7: ((0,), GIB // 2),
        8: ((0,), None),
        9: ((1,), None),
    }


@pytest.mark.parametrize(
    ("processes", "status", "reasons"),
    [
        ("", 0, (None, None)),
        ("", 14, (None, None)),
        ("No running processes found", 0, (None, None)),
        ("GPU-0, 7, 512, python", 255, (None, None)),
        ("", 255, (Unknown.NO_ANSWER, Unknown.NO_ANSWER)),
        ("", 139, (Unknown.NO_ANSWER, Unknown.NO_ANSWER)),
        ("Failed to initialize NVML: Unknown Error", 0, (Unknown.NO_ANSWER, Unknown.NO_ANSWER)),
        ("[Not Supported]", 0, (Unknown.NOT_SUPPORTED, Unknown.NOT_SUPPORTED)),
        (
            "GPU-0, 7, 512, python\nGPU-1, [Insufficient Permissions], [N/A], [N/A]",
            0,
            (None, Unknown.NO_PERMISSION),
        ),
    ],
)
def test_processes_that_are_not_listed_are_unknown(
    processes: str, status: int, reasons: tuple[Unknown | None, ...]
) -> None:
    snapshot = feed(SmiReader("box"), BOTH, processes, status)
    assert tuple(gpu.unknown.get("processes") for gpu in snapshot.gpus) == reasons


def test_a_failing_gpu_does_not_prove_that_nobody_is_on_the_others() -> None:
    case = Case([HEADING, row(0), SECOND])
    for status, reason in ((0, None), (255, Unknown.NO_ANSWER)):
        healthy = feed(SmiReader("box"), case, "", status).gpus[0]
        assert healthy.unknown.get("processes") is reason


def test_the_processes_are_unknown_if_the_query_fails(tmp_path: Path) -> None:
    rows = f"{HEADING}\n{row(0)}\n"
    write_program(
        tmp_path / "nvidia-smi",
        f'#!/bin/sh\ncase "$*" in *apps*) exit 9;; esac\ncat <<END\n{rows}END\n',
    )
    reader = SmiReader("box")
    with subprocess.Popen(
        ["sh", "-c", query_loop(3600)],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as loop:
        try:
            output = known(loop.stdout)
            snapshot = next(found for line in output for found in reader.feed(line))
        finally:
            os.killpg(loop.pid, signal.SIGKILL)  # Also its sleep.
    assert [gpu.unknown.get("processes") for gpu in snapshot.gpus] == [Unknown.NO_ANSWER]


def test_a_process_that_is_listed_twice_counts_once_and_garbage_is_no_process() -> None:
    lines = ["GPU-0, 7, 512, python", "GPU-1, 7, 128, python"] * 2
    snapshot = feed(SmiReader("box"), BOTH, "\n".join((*lines, "GPU-0, 4294967295, 9, [N/A]")))
    assert [(one.id.pid, one.memory_used) for one in snapshot.processes] == [(7, 640 * 2**20)]


SSH = """#!/bin/sh
for last; do :; done
PATH="{folder}:/usr/bin:/bin" exec sh -c "$last"
"""
NVIDIA_SMI = """#!/bin/sh
case "$*" in
*mig.mode.current*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2;;
*compute-apps*) cat "{folder}/processes"; exit 1;;
esac
fields=$(printf '%s' "$*" | sed 's/.*--query-gpu=//;s/ .*//')
row() {{
  cells=
  for field in $(printf '%s' "$fields" | tr ',' ' '); do
    case $field in
    timestamp) value='2026/11/26 18:00:00.123';;
    index) value=$1;;
    uuid) value=GPU-$1;;
    pci.bus_id) value=00000000:0$(($1 + 1)):00.0;;
    power.draw) value=25.02;;
    clocks.sm) value=210;;
    pstate) value=P8;;
    *) value='[N/A]';;
    esac
    cells="$cells, $value"
  done
  echo "${{cells#, }}"
}}
echo "Unable to determine the device handle for GPU1: 0000:02:00.0: Unknown Error" >&2
echo "$fields"
row 0
row 2
exit 1
"""


@pytest.fixture
def client(tmp_path: Path) -> SshClient:
    """Runs the commands of any host here, where there is only nvidia-smi; ``processes`` is its."""
    for name, text in (("ssh", SSH), ("nvidia-smi", NVIDIA_SMI)):
        write_program(tmp_path / name, text.format(folder=tmp_path))
    (tmp_path / "processes").touch()
    return SshClient((str(tmp_path / "ssh"),))


def test_the_whole_way_over_ssh(client: SshClient, tmp_path: Path) -> None:
    with owners(2, ["python", "train.py"]) as (first, second):
        # A number that is no PID, and a name with a backslash, which echo would end at.
        (tmp_path / "processes").write_text(
            f"2026/11/26 18:00:00.123: Unknown Error 20261126180000123\n"
            f"GPU-0, {first.pid}, 512, C:\\chrome\n"
            f"GPU-2, {second.pid}, 1024, /usr/bin/python3\n"
            "GPU-2, 1, 1024, /python3.11\n"
        )
        with reading(client, "box") as fleet:
            wait_for(fleet, lambda now: now.hosts[0].snapshot is not None)
            snapshot = known(state(fleet, "box").snapshot)
    assert statuses(snapshot) == {0: OK, 1: LOST, 2: OK}
    for gpu in snapshot.gpus:
        values = (gpu.power_draw, gpu.clock_sm, gpu.pstate)
        assert values == ((None, None, None) if gpu.index == 1 else (25.02, 210, 8))
    users = {one.id.pid: one.uid for one in snapshot.processes}
    # The driver's PID 1 is not the process that has this number here.
    assert users == {first.pid: os.getuid(), second.pid: os.getuid(), 1: None}


def test_a_bug_with_one_host_loses_no_other(
    client: SshClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsForOne(SmiReader):
        def __init__(self, host: str) -> None:
            super().__init__(host)
            self.fails = host == "one"

        def feed(self, data: bytes) -> list[Snapshot]:
            if self.fails:
                raise ValueError("a [bug]")
            return super().feed(data)

    monkeypatch.setattr(connection, "SmiReader", FailsForOne)
    with reading(client, "one", "two") as fleet:
        wait_for(fleet, lambda now: now.hosts[1].snapshot is not None)
        wait_for(fleet, lambda now: "(ValueError: a [bug])" in now.hosts[0].sentence)
