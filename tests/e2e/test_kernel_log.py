"""The dashboard on a machine whose kernel log has errors from before and gets new ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command import run_program
from tests.driver import Card, Driver, h100
from tests.lives import needs
from tests.screen import Screen

MOUNTED = 'mount --bind "$0" /dev/kmsg && exec "$@"'
SLEPT = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC) > 60


def line(card: Card, number: int, ago: float) -> str:
    at = round((time.monotonic() - ago) * 1e6)
    place = f"PCI:0000:{card.pci_bus:02x}:00"
    return f"3,900,{at},-;NVRM: Xid ({place}): {number}, pid=1234, name=\x1b]0;evil\x07\n"


class KernelLog(NamedTuple):
    """A made kernel log, and the command that shows it to a program as the machine's own."""

    path: Path
    command: list[str]


@pytest.fixture
def kernel_log(tmp_path: Path) -> KernelLog:
    room = ["unshare", "--mount"]
    log = tmp_path / "kmsg"
    log.touch()
    mount = [*room, "mount", "--bind", str(log), "/dev/kmsg"]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a mount of one's own takes root")
    return KernelLog(log, [*room, "sh", "-c", MOUNTED, str(log)])


@pytest.mark.slow
@pytest.mark.root
@needs("unshare")
@pytest.mark.skipif(not os.path.exists("/dev/kmsg"), reason="there is no kernel log here")  # noqa: PTH110 - no Path at run time
@pytest.mark.skipif(SLEPT, reason="this machine slept: times of old lines are unknown")
def test_errors_of_the_kernel_log_are_on_the_screen_and_in_gpumon_doctor(
    kernel_log: KernelLog,
) -> None:
    with Driver([h100()] * 3) as driver:
        first, second, _ = driver.cards
        ago = min(300.0, time.monotonic() / 2)
        kernel_log.path.write_text(line(first, 48, ago) + line(first, 45, ago - 1))
        # It may be shown as a second earlier or later, which may be another minute.
        about = (time.time() - ago + second for second in (-2, 2))
        minutes = {time.strftime("%H:%M", time.localtime(moment)) for moment in about}
        own = kernel_log.command
        command = [*own, sys.executable, "-m", "gpumon", "-n", "0.1"]
        with Screen(command, driver.env(), columns=120, lines=30) as screen:
            screen.wait_for(rf"▲ XID 48 at ({'|'.join(minutes)})")
            with kernel_log.path.open("a") as file:
                file.write(line(second, 119, 0.0))
            screen.wait_for(r"▲ XID 119 at ")
            assert "evil" not in screen.text()
            screen.quit()
        found = run_program(
            [*own, sys.executable, "-m", "gpumon", "doctor"], {**driver.env(), "COLUMNS": "200"}
        ).stdout
    words = " ".join(found.split())
    assert "GPU 0: XID 48 " in words
    assert "GPU 1: XID 119 " in words
    assert "what to do about XID 48: move jobs away" in words
    assert "evil" not in words


@pytest.mark.root
@needs("unshare")
@pytest.mark.skipif(not os.path.exists("/dev/kmsg"), reason="there is no kernel log here")  # noqa: PTH110 - no Path at run time
def test_watch_reports_a_killed_process_and_none_from_before_its_start(
    kernel_log: KernelLog, tmp_path: Path
) -> None:
    def killed(pid: int) -> str:
        said = f"Out of memory: Killed process {pid} (\x1b[2Jpython) total-vm:9kB"
        sizes = "anon-rss:8kB, file-rss:1kB, shmem-rss:0kB"
        return f"3,900,{round(time.monotonic() * 1e6)},-;{said}, {sizes}\n"

    alerts = tmp_path / "alerts.toml"
    alerts.write_text('[[alerts]]\nwhen = "accident oom"\ndo = [{ command = ["true"] }]\n')
    kernel_log.path.write_text(killed(4001))
    watch = [sys.executable, "-m", "gpumon", "watch", "-n", "0.2", "--alerts", str(alerts)]
    with Driver([h100()]) as driver:
        env = {**driver.env(), "XDG_STATE_HOME": str(tmp_path)}
        with Screen([*kernel_log.command, *watch], env, columns=200, lines=10) as screen:
            screen.wait_for("for 1 alert")
            with kernel_log.path.open("a") as file:
                for pid in range(4002, 4010):
                    # Lines from before the first sample are not reported.
                    file.write(killed(pid))
                    file.flush()
                    time.sleep(0.5)
            screen.wait_for(r" out of memory: 4009 \S*python \| .*the OOM killer killed a process")
            assert "4001" not in screen.text()
