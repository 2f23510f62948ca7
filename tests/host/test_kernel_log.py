"""The kernel log as a file, a pipe and a journal; the lines are public ones, cited beside them."""

from __future__ import annotations

import os
import time
import tracemalloc
from collections import deque
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpumon.host.kernel_log import KernelLine, KernelLog, journal_lines
from gpumon.host.pci import slot_of
from gpumon.makers.nvidia.kernel_lines import XidLines
from tests.absent import ABSENT
from tests.known import known

MANY, LONG = 1_000_000, 60.0

LINES = """\
6,1,1000000,-;Linux version 6.8.0
 SUBSYSTEM=pci
3,900,3600000000,-;NVRM: Xid (PCI:0000:c6:00): 79, pid=1101234, name=nvc:[driver], GPU has fallen \
off the bus.
3,901,5400000000,c;NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000
4,902,5400000001,-,caller=T1;NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 \
Link 03 (0x00086226 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)
3,903,6600000000,-;NVRM: Xid (PCI:0000:10:1C): 63, pid=1896, Row Remapper: New row marked for \
remapping, reset gpu to activate.
"""
"""79: modal.com/docs/guide/gpu-health; 31: pastebin.com/NGng33SB; 149: kmsg_extended_test.go of
leptonai/gpud; 63: stas00/ml-engineering, compute/accelerator/nvidia/debug.md. The parts before the
semicolon are the kernel's: Documentation/ABI/testing/dev-kmsg."""

Xid = tuple[int | None, str | None, float]

XIDS: list[Xid] = [
    (79, "0000:c6:00", 3600.0),
    (31, "0000:01:00", 5400.0),
    (149, "0018:01:00", 5400.000001),
    (63, "0000:10:1c", 6600.0),
]


def xids(lines: Iterable[KernelLine]) -> list[Xid]:
    parser = XidLines()
    reports = [report for line in lines if (report := parser.feed(line)) is not None]
    return [(report.number, report.slot, report.at) for report in reports]


def read(path: Path) -> list[Xid]:
    log = KernelLog(str(path))
    try:
        return xids(log.read(MANY, LONG))
    finally:
        log.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The place of the kernel's log."""
    return tmp_path / "kmsg"


@pytest.mark.parametrize(
    "line",
    [
        "",
        # Written by a program: the kernel gives its lines another facility.
        "12,9,1000000,-;NVRM: Xid (PCI:0000:c6:00): 79, GPU has fallen off the bus.",
        # A file's name in another part's message.
        '5,9,1000000,-;audit: exe="/tmp/NVRM: Xid (PCI:0000:c6:00): 79, "',
        "3,9,1000000,-;usb 1-1: NVRM: Xid of nobody",
        "3,9,1000000,-;NVRM: Xid (PCI:0000:c6:00): 791234, number too long",
        "3,9,1000000,-;NVRM: Xid (PCI:zzzz:c6:00): 79",
        "3,9,,-;NVRM: Xid (PCI:0000:c6:00): 79",
        "NVRM: Xid (PCI:0000:c6:00): 79",
        "3,9,1000000,-;NVRM: Xid (PCI:0000:c6:00",
        ";;;;,,,,",
        "\x00" * 100,
        # Longer than two reads, so that the third begins with what looks like a line.
        pytest.param("x" * 2 * 8192 + LINES.splitlines()[2], id="an endless line"),
    ],
)
def test_what_the_driver_did_not_write_is_no_xid(log: Path, line: str) -> None:
    log.write_text(f"{line}\n{LINES}")
    assert read(log) == XIDS


def test_bytes_that_act_on_a_terminal_do_not_hide_an_xid(log: Path) -> None:
    evil = b"3,9,7000000000,-;NVRM: Xid (PCI:0000:C6:00\x1b]0;evil\x07): 43, name=\x1b[2J\xff\xfe\n"
    log.write_bytes(evil)
    assert read(log) == [(43, "0000:c6:00", 7000.0)]


def test_later_reads_begin_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(LINES)
    log = KernelLog(str(path))
    assert xids(log.read(MANY, LONG)) == XIDS
    assert xids(log.read(MANY, LONG)) == []
    with path.open("a") as file:
        file.write("3,904,6700000000,-;NVRM: Xid (PCI:0000:c6:00): 4")
        file.flush()
        assert xids(log.read(MANY, LONG)) == []
        file.write("8, pid=1, name=x\n")
    assert xids(log.read(MANY, LONG)) == [(48, "0000:c6:00", 6700.0)]
    log.close()


def test_a_log_longer_than_one_reading_is_read_whole(log: Path) -> None:
    log.write_text(LINES * 300)
    assert len(read(log)) == 1200


def test_a_gigabyte_costs_bounded_lines_and_memory_and_what_comes_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text(LINES * 3000)
    with path.open("ab") as file:
        file.truncate(2**30)  # All zeros, and no end of a line.
    log = KernelLog(str(path))
    tracemalloc.start()
    before = time.thread_time()
    assert len(xids(log.read(1000, LONG))) < 1000
    assert log.behind
    deque(log.read(MANY, 0.2), maxlen=0)  # Keeps none, so that what is measured is the log's.
    assert log.behind
    assert time.thread_time() - before < 5
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**20
    log.skip()
    with path.open("ab") as file:
        file.write(b"\n3,904,6700000000,-;NVRM: Xid (PCI:0000:c6:00): 48, pid=1\n")
    assert xids(log.read(MANY, LONG)) == [(48, "0000:c6:00", 6700.0)]
    assert not log.behind
    log.close()


def test_a_pipe_that_nobody_closes_is_left_at_once(tmp_path: Path) -> None:
    """As with the kernel's log: nothing more is there to be read now."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    writer = os.open(pipe, os.O_RDWR)
    log = KernelLog(str(pipe))
    try:
        os.write(writer, LINES.encode())
        assert xids(log.read(MANY, LONG)) == XIDS
        assert not log.wait(0.01)
        os.write(writer, LINES.encode())
        assert log.wait(60)
        assert xids(log.read(MANY, LONG)) == XIDS
    finally:
        log.close()
        os.close(writer)


@pytest.mark.parametrize("target", ["/dev/zero", ABSENT, "/tmp"])
def test_what_is_no_kernel_log_is_an_error_and_not_empty(log: Path, target: str) -> None:
    log.symlink_to(target)
    with pytest.raises(OSError, match=r"another device|No such file|Is a directory"):
        read(log)


@pytest.mark.parametrize(
    ("bus_id", "slot"),
    [
        ("00000000:3B:00.0", "0000:3b:00"),
        ("0000:3b:00.0", "0000:3b:00"),
        ("00010000:3B:00.0", "10000:3b:00"),
        ("index-3", None),
        ("", None),
    ],
)
def test_a_place_on_the_bus_has_one_form(bus_id: str, slot: str | None) -> None:
    assert slot_of(bus_id) == slot


JOURNAL = r"""#!/bin/sh
[ "$1" = -k ] || exit 1
printf '[    0.000000] ada kernel: Linux version 6.8.0\n'
printf '[ 3600.000000] ada kernel: NVRM: Xid (PCI:0000:c6:00): 79, pid=1, name=\033[2J\n'
printf '[ 3600.000001] ada other[7]: NVRM: Xid (PCI:0000:c6:00): 48, a program wrote it\n'
"""


def test_the_journal_tells_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "journalctl"
    program.write_text(JOURNAL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert xids(known(journal_lines())) == [(79, "0000:c6:00", 3600.0)]
    program.write_text("#!/bin/sh\nexit 1\n")
    assert journal_lines() is None
    program.write_text("#!/bin/sh\necho 'Hint: You are not seeing messages' >&2\n")
    assert journal_lines() is None
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert journal_lines() is None
