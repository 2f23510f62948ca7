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
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from gpumon.fleet.fleet import HostStatus
from gpumon.fleet.ssh import SshClient
from gpumon.fleet.ssh_fleet import SshFleet
from gpumon.stream import StreamWriter
from tests.bench.measures import MIB
from tests.bench.meters import pss_of
from tests.fleet.streamer import samples
from tests.known import known
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
    print(begin, flush=True)
    for number, sample in enumerate(samples(begin, _INTERVAL)):
        for place, (pipe, writer) in enumerate(zip(pipes, writers, strict=True)):
            at = begin + (number + place / len(pipes)) * _INTERVAL
            time.sleep(max(0.0, at - time.time()))
            os.write(pipe, writer.write(sample, time.time()))


class Hosts(NamedTuple):
    names: list[str]  # Their names.
    client: str  # The program that reaches them.
    folder: str  # Their pipes.

    @contextmanager
    def writing(self) -> Iterator[tuple[int, float]]:
        """Write their streams; the writer's PID, and when it wrote the first line."""
        command = [sys.executable, "-m", "tests.bench.fleet", "--write", self.folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            try:
                yield writer.pid, float(known(writer.stdout).readline())
            finally:
                writer.kill()


@contextmanager
def hosts_of(count: int) -> Iterator[Hosts]:
    """Hosts that answer, and send nothing before they are written."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"gpu-{number:03}" for number in range(count)]
        for host in names:
            os.mkfifo(folder / host)
        client = folder / "client"
        client.write_text(_CLIENT.format(folder=folder))
        client.chmod(0o755)
        yield Hosts(names, str(client), name)


def measure_first_row(hosts: int) -> None:
    """Print how long after the first host's first line its row is on the screen."""
    delays = []
    for _ in range(5):
        with (
            hosts_of(hosts) as simulated,
            Screen(_command(simulated), columns=200, lines=50) as screen,
        ):
            screen.wait_for("connecting")
            with simulated.writing() as (_, began):
                screen.wait_for(r"gpu-\d+ +[○▁▂▃▄▅▆▇]")
                delays.append(time.time() - began)
                screen.type("q")
                screen.wait_end()
    print(f"first row after        {statistics.median(delays):.2f} s from the first line (median)")
    print(f"                       {max(delays):.2f} s (longest of {len(delays)})")


def _command(hosts: Hosts) -> list[str]:
    gpumon = [sys.executable, "-m", "gpumon", "-n", f"{_INTERVAL:g}"]
    return [*gpumon, "--ssh", hosts.client, "--hosts", ",".join(hosts.names)]


def measure_screen(hosts: int, seconds: float) -> None:
    """Show the hosts for some seconds, and print what the program cost."""
    with hosts_of(hosts) as simulated, simulated.writing():
        began = time.monotonic()
        with Screen(_command(simulated), columns=200, lines=50) as screen:
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
            print(f"PSS with the screen    {pss_of(program.pid) / MIB:.1f} MiB")
            print(f"output                 {(len(screen.output) - sent) / seconds / 1000:.1f} kB/s")
            print(f"key to screen          {1000 * statistics.median(delays):.1f} ms (median)")
            worst = delays[min(len(delays) - 1, len(delays) * 99 // 100)]
            print(f"                       {1000 * worst:.1f} ms (p99 of {len(delays)})")
            screen.type("q")
            screen.wait_end()


def measure(hosts: int, seconds: float) -> None:
    """Read the hosts for some seconds, and print what it cost."""
    own = psutil.Process()
    before = pss_of(own.pid) / MIB
    with hosts_of(hosts) as simulated, simulated.writing() as (writer, _):
        fleet = SshFleet(simulated.names, _INTERVAL, SshClient((simulated.client,)))
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
            now = pss_of(own.pid) / MIB
            print(f"PSS of gpumon          {now:.1f} MiB, {before:.1f} before it connected")
            print(f"PSS of the clients     {sum(pss_of(one.pid) for one in clients) / MIB:.1f} MiB")
            print(f"changes told           {told / seconds:.0f} a second")
            print(f"line to listener       {1000 * statistics.median(delays):.2f} ms (median)")
        finally:
            fleet.close()


def main() -> None:
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
        measure_first_row(options.hosts)


if __name__ == "__main__":
    main()
