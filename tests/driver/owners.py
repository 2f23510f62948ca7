"""Real processes that stand for the owners of simulated cards."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from .build import build_owner
from .driver import Card, Driver, Owner
from .models import GIB, MIB
from .repeating import repeating

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .layout import MigState

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("python", "train.py", "--config", "big.yaml", "--epochs", "90"),
    ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "llama-70b"),
    ("python", "-m", "ipykernel_launcher", "-f", "kernel-4f1c.json"),
    ("torchrun", "--nproc-per-node", "8", "finetune.py", "--lr", "3e-5"),
    ("./gmx", "mdrun", "-deffnm", "md_0_1", "-nb", "gpu"),
)
"""What the owners are called, in turn, unless told otherwise."""


UNIFIED = 16 * GIB
"""What owners share of a card that tells no memory of its own."""


@contextmanager
def owners(
    count: int,
    command: Sequence[str] | None = None,
    *,
    rss_mib: int = 0,
    cpu: float = 0.0,
    device: str | None = None,
    stubborn: bool = False,
    children: int = 0,
    environ: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts this many processes, and kills them at the end of the block.

    They are at work when the block begins. Each ends by itself when the thread that started it
    does (a Linux parent-death signal follows the thread), so nothing is left behind by a crash.

    `/proc/PID/cmdline` shows the command; each holds so much resident memory and the device file
    open, and burns a share of a core. Stubborn ones ignore SIGTERM and SIGINT.
    """
    ready, done = os.pipe()
    variables = {
        **environ,
        "OWNER_RSS_MIB": str(rss_mib),
        "OWNER_CPU": str(cpu),
        "OWNER_CHILDREN": str(children),
        "OWNER_READY": str(done),
        **({"OWNER_DEVICE": device} if device else {}),
        **({"OWNER_STUBBORN": "1"} if stubborn else {}),
    }
    program = build_owner()
    started: list[subprocess.Popen[bytes]] = []
    try:
        for i in range(count):
            shown = command or COMMANDS[i % len(COMMANDS)]
            started.append(
                subprocess.Popen(shown, executable=program, env=variables, pass_fds=(done,))
            )
        os.close(done)
        os.read(ready, 1)  # returns when the last of them has closed its end
        yield started
    finally:
        os.close(ready)
        for process in started:
            process.kill()
        for process in started:
            process.wait()


def settle(driver: Driver, pids: Sequence[int]) -> None:
    """Shares the processes out over the cards and makes the cards look accordingly.

    Every MIG instance counts as a card. A tenth of a card's memory stays free.
    """
    places: list[tuple[Card, MigState | None]] = []
    for card in driver.cards:
        places += [(card, mig) for mig in card.mig] or [(card, None)]
    for card in driver.cards:
        card.processes = ()
    for n, (card, mig) in enumerate(places):
        mine = pids[n :: len(places)]
        total = mig.memory_total if mig else card.memory_total or UNIFIED
        each = (total * 9 // 10) // max(len(mine), 1) // MIB * MIB
        guests = tuple(
            Owner(
                pid,
                memory=each,
                type="C" if i % 4 else "C+G",
                sm=None if mig else 5 + 7 * i % 30,
                memory_util=3 + 5 * i % 20,
                gpu_instance=mig.gpu_instance if mig else None,
                compute_instance=mig.compute_instance if mig else None,
            )
            for i, pid in enumerate(mine)
        )
        card.processes = card.processes + guests
        if mig:
            mig.memory_used = each * len(mine)
        if card.memory_total is not None:
            card.memory_used = sum(owner.memory or 0 for owner in card.processes)


def bury(driver: Driver) -> None:
    """Takes from the cards what ended processes had, as the real driver does."""
    for card in driver.cards:
        card.keep_living(lives)


def lives(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat[stat.rindex(b")") + 2 :][:1] not in b"ZX"


@contextmanager
def buried(driver: Driver) -> Iterator[None]:
    """Calls ``bury`` again and again, from a thread, until the block ends."""
    with repeating(lambda: bury(driver), 0.02, "gravedigger"):
        yield
