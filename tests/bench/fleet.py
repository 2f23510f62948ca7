"""``python -m tests.bench.fleet``: what reading many hosts costs this machine.

One program writes the streams of all hosts, 8 GPUs and 40 processes each, into named pipes; a shell
script stands for ssh and copies a pipe to its output. So the cost is that of gpumon alone, without
ssh: first of reading alone, then of the whole program with its screen of 200×50, on which the
cursor moves.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from gpumon.fleet import HostStatus
from gpumon.fleet.ssh import SshClient
from gpumon.fleet.ssh_fleet import SshFleet
from gpumon.stream import StreamWriter
from tests.fleet.streamer import samples
from tests.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENT = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo '#gpumon stream'
exec cat {folder}/"$2"
"""
_INTERVAL = 1.0


def write_streams(folder: Path) -> None:
    """Write the streams of all hosts, evenly over each second, until killed."""
    pipes = [os.open(path, os.O_RDWR) for path in sorted(folder.glob("gpu-*"))]
    writers = [StreamWriter(_INTERVAL) for _ in pipes]
    begin = time.time()
    for number, sample in enumerate(samples(begin, _INTERVAL)):
        for place, (pipe, writer) in enumerate(zip(pipes, writers, strict=True)):
            at = begin + (number + place / len(pipes)) * _INTERVAL
            time.sleep(max(0.0, at - time.time()))
            os.write(pipe, writer.line(sample, time.time()))


def pss(process: psutil.Process) -> float:
    """MiB of memory, with its part of what is shared."""
    with suppress(psutil.Error):
        pages: float = process.memory_full_info().pss
        return pages / 2**20
    return 0.0


@contextmanager
def hosts_of(count: int) -> Iterator[tuple[list[str], str, int]]:
    """Hosts that write streams: their names, the client that reaches them, the writer's PID."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"gpu-{number:03}" for number in range(count)]
        for host in names:
            os.mkfifo(folder / host)
        client = folder / "client"
        client.write_text(_CLIENT.format(folder=folder))
        client.chmod(0o755)
        writing = subprocess.Popen([sys.executable, "-m", "tests.bench.fleet", "--write", name])
        try:
            yield names, str(client), writing.pid
        finally:
            writing.kill()
            writing.wait()


def measure_screen(hosts: int, seconds: float) -> None:
    """Show the hosts for some seconds, and print what the program cost."""
    with hosts_of(hosts) as (names, client, _):
        command = [sys.executable, "-m", "gpumon", "-n", f"{_INTERVAL:g}", "--ssh", client]
        began = time.monotonic()
        with Screen([*command, "--hosts", ",".join(names)], columns=200, lines=50) as screen:
            screen.wait_for(r"gpu-\d+ +[○▁▂▃▄▅▆▇]")
            print(f"first row after        {time.monotonic() - began:.2f} s from the start")
            screen.wait_for(rf"hosts {hosts} ")
            print(f"all on the screen after {time.monotonic() - began:.2f} s")
            screen.type("\x1b[B")
            screen.wait_for("▸")
            # ``setsid`` has become the program.
            program = psutil.Process(screen.process.pid)
            sent, wall = len(screen.output), time.monotonic()
            cpu = sum(program.cpu_times()[:2])
            delays: list[float] = []
            while time.monotonic() < wall + seconds:
                key = "\x1b[A" if len(delays) % 2 else "\x1b[B"
                before, pressed = screen.text().index("▸"), time.monotonic()
                screen.type(key)
                screen.wait(lambda it, old=before: it.text().find("▸") not in {old, -1}, "a move")  # type: ignore[misc]  # a default binds the value
                delays.append(time.monotonic() - pressed)
                time.sleep(0.1)
            cost = (sum(program.cpu_times()[:2]) - cpu) / (time.monotonic() - wall)
            delays.sort()
            print(f"CPU with the screen    {100 * cost:.1f} % of a core")
            print(f"PSS with the screen    {pss(program):.1f} MiB")
            print(f"output                 {(len(screen.output) - sent) / seconds / 1000:.1f} kB/s")
            print(f"key to screen          {1000 * statistics.median(delays):.1f} ms (median)")
            worst = delays[min(len(delays) - 1, len(delays) * 99 // 100)]
            print(f"                       {1000 * worst:.1f} ms (p99 of {len(delays)})")
            screen.type("q")
            screen.wait_end()


def measure(hosts: int, seconds: float) -> None:
    """Read the hosts for some seconds, and print what it cost."""
    own = psutil.Process()
    before = pss(own)
    with hosts_of(hosts) as (names, client, writer):
        fleet = SshFleet(names, _INTERVAL, SshClient((client,)))
        delays: list[float] = []
        told = 0

        def listen() -> None:
            nonlocal told
            told += 1
            now = time.time()
            newest = max((one.received_at or 0.0) for one in fleet.latest().hosts)
            delays.append(now - newest)

        began = time.monotonic()
        fleet.start()
        try:
            while any(one.status is not HostStatus.LIVE for one in fleet.latest().hosts):
                time.sleep(0.01)
            live = time.monotonic() - began
            end = fleet.subscribe(listen)
            own.cpu_percent()
            began_cpu, wall = sum(own.cpu_times()[:2]), time.monotonic()
            time.sleep(seconds)
            cpu = (sum(own.cpu_times()[:2]) - began_cpu) / (time.monotonic() - wall)
            end()
            clients = [one for one in own.children() if one.pid != writer]
            print(f"hosts                  {hosts}")
            print(f"all live after         {live:.2f} s")
            print(f"CPU of gpumon          {100 * cpu:.1f} % of a core")
            print(f"PSS of gpumon          {pss(own):.1f} MiB, {before:.1f} before it connected")
            print(f"PSS of the clients     {sum(map(pss, clients)):.1f} MiB")
            print(f"changes told           {told / seconds:.0f} a second")
            print(f"line to listener       {1000 * statistics.median(delays):.2f} ms (median)")
        finally:
            fleet.close()


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.fleet", description=__doc__)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write_streams(options.write)
    else:
        measure(options.hosts, options.seconds)
        measure_screen(options.hosts, options.seconds)


if __name__ == "__main__":
    main()
