"""Every form of the kernel's lines about GPUs and killed processes, honest and hostile."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.host.kernel_log import KernelLine, KernelReport, LineParser
from gpumon.host.kernel_watcher import Heard, KernelWatcher
from gpumon.host.oom import OomLines
from gpumon.makers.accidents import watcher_of
from gpumon.makers.amd.kernel_lines import AmdgpuLines
from gpumon.makers.intel.kernel_lines import IntelLines
from gpumon.makers.nvidia.kernel_lines import XidLines
from gpumon.model.accidents import AccidentKind
from gpumon.model.makers import load, makers
from gpumon.system.system import THIS_SYSTEM, System
from tests.known import known
from tests.lives import until

Watch = Callable[[], KernelWatcher]

ERROR_CODE, TIMEOUT = AccidentKind.ERROR_CODE, AccidentKind.TIMEOUT
RESET, OUT_OF_MEMORY = AccidentKind.RESET, AccidentKind.OUT_OF_MEMORY


def reports(parser: LineParser, *lines: str | bytes) -> list[KernelReport]:
    found = []
    for line in lines:
        data = line if isinstance(line, bytes) else line.encode()
        found.append(parser.feed(KernelLine(1.0, data)))
    return [*filter(None, found), *parser.end_turn(), *parser.end_turn()]


def xid(rest: str) -> tuple[int | None, int | None, str | None, str | None, str]:
    (report,) = reports(XidLines(), f"NVRM: Xid (PCI:0000:41:00): {rest}")
    assert (report.kind, report.slot) == (ERROR_CODE, "0000:41:00")
    return report.number, report.pid, report.process_name, report.channel, report.text


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        # 470: no name; 510 and later: with it.
        ("43, pid=812, Ch 00000008", (43, 812, None, "00000008", "Ch 00000008")),
        (
            "31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
            (31, 1234, "python", "00000008", "Ch 00000008, intr 00000000. MMU Fault: E"),
        ),
        (
            "31, pid=1234, name=python, channel 0x00000008, intr 0",
            (31, 1234, "python", "0x00000008", "channel 0x00000008, intr 0"),
        ),
        (
            "13, pid='1234', name=train, Graphics SM Warp Exception on (GPC 0, TPC 1): Out Of",
            (13, 1234, "train", None, "Graphics SM Warp Exception on (GPC 0, TP"),
        ),
        (
            "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            (79, None, None, None, "GPU has fallen off the bus."),
        ),
        ("79, GPU has fallen off the bus.", (79, None, None, None, "GPU has fallen off the bus.")),
        (
            "45, pid=7, name=x.py, Ch 00000009 caused by previous Xid 43",
            (45, 7, "x.py", "00000009", "Ch 00000009 caused by previous Xid 43"),
        ),
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            (154, None, None, None, "GPU recovery action changed from 0x0 (No"),
        ),
        (
            "119, pid=7, name=nvc:[driver], Timeout after 6s of waiting for RPC response",
            (119, 7, "nvc:[driver]", None, "Timeout after 6s of waiting for RPC resp"),
        ),
        # A name may hold anything: nothing that follows from it is said.
        ("43, pid=9, name=a, pid=1, Ch 8", (43, 9, None, None, "a, pid=1, Ch 8")),
        ("43, pid=9, name=a, Ch 7, x, Ch 8", (43, 9, None, None, "a, Ch 7, x, Ch 8")),
        ("43, pid=9, name=<unknown>, Ch 000007, x", (43, 9, "<unknown>", "000007", "Ch 000007, x")),
        ("43, pid=9, name=<unknown>, C, Ch 7", (43, 9, None, None, "<unknown>, C, Ch 7")),
        ("43, pid=9, name=\\x1b[2J\\x2c, Ch 8", (43, 9, "\x1b[2J,", "8", "Ch 8")),
        ("43, pid=99999999999, name=a", (43, None, None, None, "pid=99999999999, name=a")),
        ("43, pid=0, name=a", (43, None, "a", None, "")),
        ("43, pid=4194305, name=a", (43, None, "a", None, "")),
        ("43", (43, None, None, None, "")),
    ],
)
def test_an_xid_has_what_its_line_says(
    rest: str, expected: tuple[int, int | None, str | None, str | None, str]
) -> None:
    *found, text = xid(rest)
    assert (*found, text[:40]) == expected


def test_the_numbers_of_a_mig_instance_are_no_part_of_the_slot() -> None:
    line = "NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:00): 31, pid=5, name=a, Ch 00000008, intr 0"
    (report,) = reports(XidLines(), line)
    assert (report.slot, report.number, report.pid) == ("0000:41:00", 31, 5)


AMD = "amdgpu 0000:28:00.0: amdgpu: "
OLD = "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* "
SEQ = "signaled seq=5, emitted seq=7"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            f"{AMD}ring gfx_0.0.0 timeout, {SEQ}",
            f"{AMD}Process information: process vkgame pid 42 thread vkgame:cs0 pid 43",
        ),
        (
            f"amdgpu 0000:28:00.0: ring gfx_0.0.0 timeout, {SEQ}",
            "amdgpu 0000:28:00.0:  Process vkgame pid 42 thread vkgame:cs0 pid 43",
        ),
        (
            f"{AMD}ring gfx_0.0.0 timeout, {SEQ}",
            f"{AMD} Process vkgame pid 42 thread vkgame:cs0 pid 43",
        ),
    ],
)
def test_a_ring_that_timed_out_and_its_process_are_one(first: str, second: str) -> None:
    assert reports(AmdgpuLines(), first, "usb 1-1: reset", second) == [
        KernelReport(
            1.0,
            TIMEOUT,
            "0000:28:00",
            pid=42,
            process_name="vkgame",
            channel="gfx_0.0.0",
            text=f"ring gfx_0.0.0 timeout, {SEQ}",
        )
    ]


def test_kernels_that_do_not_say_which_amd_gpu() -> None:
    process = "Process information: process a b pid 42 thread c pid 43"
    (report,) = reports(AmdgpuLines(), f"{OLD}ring gfx timeout, {SEQ}", f"{OLD}{process}")
    assert (report.slot, report.pid, report.process_name) == (None, 42, "a b")


@pytest.mark.parametrize(
    "process",
    [
        "a pid 1 thread pid 42 thread b pid 43",  # Its name is "a pid 1 thread", or "a".
        " pid 0 thread  pid 0",
        "a pid 4194305 thread b pid 43",
    ],
)
def test_an_ambiguous_or_unknown_process_of_amdgpu_is_not_said(process: str) -> None:
    lines = f"{AMD}ring gfx timeout, {SEQ}", f"{AMD}Process information: process {process}"
    (report,) = reports(AmdgpuLines(), *lines)
    assert (report.kind, report.pid, report.process_name) == (TIMEOUT, None, None)


def test_a_process_without_a_timeout_is_nothing_and_a_timeout_without_one_is_kept() -> None:
    process = f"{AMD}Process information: process a pid 42 thread b pid 43"
    assert reports(AmdgpuLines(), process) == []
    (report,) = reports(AmdgpuLines(), f"{AMD}ring sdma0 timeout, but soft recovered")
    assert (report.channel, report.pid) == ("sdma0", None)


@pytest.mark.parametrize("line", [f"{AMD}GPU reset begin!", f"{AMD}GPU reset begin!. Source:  1"])
def test_amdgpu_begins_a_reset(line: str) -> None:
    (report,) = reports(AmdgpuLines(), line)
    assert (report.kind, report.slot) == (RESET, "0000:28:00")


I915, XE = "i915 0000:00:02.0: ", "xe 0000:00:02.0: [drm] "


@pytest.mark.parametrize(
    ("line", "kind", "pid", "name"),
    [
        (f"{I915}[drm] GPU HANG: ecode 12:1:85dffffb, in game [42]", TIMEOUT, 42, "game"),
        (f"{I915}[drm] GPU HANG: ecode 9:1:00000000", TIMEOUT, None, None),
        (f"{I915}[drm] GPU HANG: ecode 12:1:8, in x [1], in [42]", TIMEOUT, 42, "x [1], in"),
        (f"{I915}[drm] GT0: Resetting chip for stopped heartbeat", RESET, None, None),
        (f"{I915}Resetting chip for GPU hang", RESET, None, None),
        (
            f"{XE}GT0: Timedout job: seqno=1, lrc_seqno=1, guc_id=4, flags=0x0 in game [42]",
            TIMEOUT,
            42,
            "game",
        ),
        (
            f"{XE}Tile0: GT1: Timedout job: seqno=1, guc_id=-1, flags=0x0 in no process [-1]",
            TIMEOUT,
            None,
            None,
        ),
        (f"{XE}Timedout job: seqno=1, guc_id=4, flags=0x8", TIMEOUT, None, None),
        (f"{XE}Tile0: GT0: reset started", RESET, None, None),
    ],
)
def test_each_form_of_intels_drivers(
    line: str, kind: AccidentKind, pid: int | None, name: str | None
) -> None:
    (report,) = reports(IntelLines(), line)
    assert (report.kind, report.slot) == (kind, "0000:00:02")
    assert (report.pid, report.process_name) == (pid, name)


CHOSEN = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/a/job_91,task_memcg=/a/job_91/step_0,task={0},pid=42,uid=1001"
)
KILLED = (
    "Memory cgroup out of memory: Killed process {1} ({0}) total-vm:90kB, anon-rss:8kB, "
    "file-rss:1kB, shmem-rss:3kB, UID:1001 pgtables:1kB oom_score_adj:0"
)


@pytest.mark.parametrize(
    "name", ["python3", "a,pid=1,uid=2", ") total-vm:9kB,", "[2], task=x", "\\x1b]0;e\\x07", ""]
)
def test_a_killed_process_is_one_accident_with_its_memory_and_cgroup(name: str) -> None:
    (report,) = reports(OomLines(), CHOSEN.format(name), KILLED.format(name, 42))
    assert report == KernelReport(
        1.0,
        OUT_OF_MEMORY,
        pid=42,
        process_name=name.replace("\\x1b", "\x1b").replace("\\x07", "\x07") or None,
        text="Memory cgroup out of memory",
        cgroup="/a/job_91",
        memory=12 * 1024,
    )


def test_all_killed_processes_of_a_cgroup_have_it() -> None:
    lines = (KILLED.format("python3", pid) for pid in (42, 43, 44))
    found = reports(OomLines(), CHOSEN.format("python3"), *lines)
    assert [(one.pid, one.cgroup) for one in found] == [(pid, "/a/job_91") for pid in (42, 43, 44)]


def test_memory_of_the_machine_has_no_cgroup() -> None:
    chosen = (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
        "task_memcg=/user.slice,task=python3,pid=42,uid=0"
    )
    killed = KILLED.format("python3", 42).replace("Memory cgroup out", "Out")
    (report,) = reports(OomLines(), chosen, killed)
    assert (report.cgroup, report.text, report.memory) == (None, "Out of memory", 12288)


def test_a_cgroup_has_the_name_that_proc_has() -> None:
    """The kernel log writes the backslash of systemd's escapes as an escape of its own."""
    (report,) = reports(OomLines(), CHOSEN.format("a").replace("/a/job_91,", "/a\\x5cx2db,"))
    assert report.cgroup == "/a\\x2db"


def test_a_cgroup_whose_name_imitates_the_line_is_not_said() -> None:
    forged = CHOSEN.format("a").replace("cpuset=/", "cpuset=/x,oom_memcg=/y,task_memcg=/z")
    (report,) = reports(OomLines(), forged)
    assert (report.pid, report.cgroup) == (42, None)


PARSERS = [load(maker.log_parser) for maker in makers() if maker.log_parser is not None]


@pytest.mark.parametrize("parser", [*PARSERS, OomLines])
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff\x00" * 4000,
        b"oom-kill:constraint=" + b",task=,pid=1" * 600,
        b"NVRM: Xid (PCI:0000:41:00): 43, pid=1, name=" + b", " * 4000,
        b"amdgpu 0000:28:00.0: Process information: process " + b" pid 1 thread" * 600,
        XE.encode() + b"Timedout job: " + b"a=0, " * 1600 + b"in",
        XE.encode() + b"Timedout job: " + b"a=aaa" * 20 + b"!",
        b"Killed process 1 (" + b") total-vm:1kB, anon-rss:1kB, " * 250,
        I915.encode() + b"[drm] GPU HANG: ecode " + b"1:" * 4000,
    ],
)
def test_a_hostile_line_costs_milliseconds(parser: Callable[[], LineParser], line: bytes) -> None:
    began = time.thread_time()
    for report in reports(parser(), *[line] * 5):
        assert len(report.text) <= 200
    assert time.thread_time() - began < 1


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    watchers: list[KernelWatcher] = []

    def start() -> KernelWatcher:
        watcher = watcher_of(System(dev=str(tmp_path), slept=lambda: 0.0))
        watchers.append(watcher)
        watcher.start()
        return watcher

    yield start
    for watcher in watchers:
        watcher.stop()


def heard(watcher: KernelWatcher, count: int) -> list[Heard]:
    found: list[Heard] = []

    def are_there() -> bool:
        found.extend(watcher.take() or ())
        return len(found) >= count

    until(are_there, lambda: f"{count} accidents, only {found}")
    return found


def written(text: str) -> bytes:
    return f"3,1,{round(time.monotonic() * 1e6)},-;{text}\n".encode()


def test_all_makers_and_the_oom_killer_are_heard_within_two_seconds(
    tmp_path: Path, watch: Watch
) -> None:
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        watcher = watch()
        until(lambda: watcher.take() is not None, "the end of the past")
        began = time.monotonic()
        for line in (
            "NVRM: Xid (PCI:0000:41:00): 31, pid=5, name=a, Ch 00000008, intr 0",
            f"{AMD}ring gfx timeout, {SEQ}",  # Its process does not come.
            f"{I915}[drm] GPU HANG: ecode 12:1:85dffffb, in game [42]",
            CHOSEN.format("python3"),
            KILLED.format("python3", 42),
        ):
            os.write(writer, written(line))
        found = heard(watcher, 4)
        assert time.monotonic() - began < 2
    finally:
        os.close(writer)
    kinds = [each.report.kind for each in found]
    assert sorted(kinds) == sorted([ERROR_CODE, TIMEOUT, TIMEOUT, OUT_OF_MEMORY])
    assert all(abs(each.time - time.time()) < 5 and not each.is_past for each in found)


def test_a_million_lines_are_bounded_and_the_next_accident_is_heard(
    tmp_path: Path, watch: Watch
) -> None:
    path = tmp_path / "kmsg"
    line = b"3,1,1000000,-;NVRM: Xid (PCI:0000:41:00): 31, pid=5, name=\\x1b]0;a, Ch 8, intr 0\n"
    with path.open("wb") as file:
        for _ in range(100):
            file.write(line * 10_000)
    tracemalloc.start()
    watcher = watch()
    past = heard(watcher, 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < len(past) <= 4096
    assert most < 32 * 2**20
    with path.open("ab") as file:
        file.write(written("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus."))
    assert [each.report.number for each in heard(watcher, 1)] == [79]


def test_a_log_that_may_not_be_read_is_known(tmp_path: Path, watch: Watch) -> None:
    (tmp_path / "kmsg").symlink_to("/dev/zero")
    watcher = watch()
    until(lambda: not watcher.is_readable, "the refusal")
    assert watcher.take() == []


# The kernel's own OOM killer, where a test may make a cgroup and read the kernel log.

MIB = 2**20
GREEDY = f"""
import sys
sys.stdin.readline()
memory = bytearray({400 * MIB})
for page in range(0, len(memory), 4096):
    memory[page] = 1
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup that may use 40 MiB."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = {line.split(":", 2)[1]: line.split(":", 2)[2].lstrip("/") for line in lines}
    if "memory" in own:
        parent, limit = Path("/sys/fs/cgroup/memory", own["memory"]), "memory.limit_in_bytes"
    else:
        parent, limit = Path("/sys/fs/cgroup", own.get("", "")), "memory.max"
    folder = parent / f"gpumon-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("no cgroup can be made here")
    try:
        (folder / limit).write_text(str(40 * MIB))
        yield folder
    except OSError:
        pytest.skip("no limit can be set here")
    finally:
        folder.rmdir()


@pytest.mark.root
def test_a_process_that_the_kernel_killed_is_an_accident_within_two_seconds(cgroup: Path) -> None:
    watcher = watcher_of(THIS_SYSTEM)
    watcher.start()
    try:
        until(lambda: watcher.take() is not None, "the end of the past")
        if not watcher.is_readable:
            pytest.skip("the kernel log may not be read here")
        process = subprocess.Popen([sys.executable, "-c", GREEDY], stdin=subprocess.PIPE)
        (cgroup / "cgroup.procs").write_text(str(process.pid))
        process.communicate(b"\n")
        assert process.returncode == -9
        ended = time.monotonic()
        found: list[Heard] = []
        while not found:
            assert time.monotonic() < ended + 2
            heard = watcher.take() or []
            found = [each for each in heard if str(each.report.cgroup).endswith(cgroup.name)]
            time.sleep(0.01)
    finally:
        watcher.stop()
    (killed,) = found
    assert killed.report.kind is AccidentKind.OUT_OF_MEMORY
    assert 30 * MIB < known(killed.report.memory) < 60 * MIB
    assert abs(killed.time - time.time()) < 10
    assert not killed.is_past
