"""What the demo's story is told in: its moments, its people, and what is known of each actor.

The times of the story are in seconds after the demo's start, so mostly negative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time

from msgspec import Struct

from gpumon.model.snapshot import Place

GIB = 2**30

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0

PAST = 4 * HOUR
"""How long before the demo began somebody began to look at the machine."""
CARD_LOST = -5.5 * MINUTE
MACHINE_BOOT = -41 * DAY

LOST_CARD = 6
STRAY_CARD = 7
"""The card with memory that no process has."""

ME = "ann"
"""The person who runs this program on the demo's machine."""
UIDS = {
    "root": 0,
    "svc-llm": 988,
    "ann": 1004,
    "bo": 1006,
    "chen": 1009,
    "dara": 1011,
    "erin": 1013,
    "finn": 1015,
    "gina": 1018,
    "hugo": 1021,
}


class Share(Struct, frozen=True):
    """What a process has of one card.

    Attributes:
        card: Index of the card.
        gib: GPU memory when it starts.
        part: Which part of the card's utilisation is its own.
        decodes: Whether the card's video decoder works for it.
    """

    card: int
    gib: float
    part: float = 0.0
    decodes: bool = False


class Runs(Struct, frozen=True):
    """When something is there: once, or again and again for ever, before ``started`` too.

    Attributes:
        started: When a run starts, in seconds after the demo's start.
        lasts: How long a run takes, in seconds.
        every: Seconds from the start of a run to that of the next; infinite where there is one.
    """

    started: float
    lasts: float = math.inf
    every: float = math.inf


class Actor(Struct, frozen=True):
    """A process of the story, or one that comes back again and again under a new number.

    Attributes:
        pid: Its number; each further run has a higher one.
        parent: The number of the process that started it.
        user: Whose it is.
        command: Its command line.
        runs: When it is there.
        shares: What it has on which cards.
        type: C, G or M.
        cpu: Percent of a core while its first card is half busy.
        rss_gib: Resident host memory.
        gib_per_hour: How fast its GPU memory grows on each card.
        name: The kernel's short name of it, where that is not its program's.
        threads: How many it has.
        leads: Whether it leads a session of its own.
        where: What it begins: a container, a Slurm step, a tmux session, for its children too.
        executable: Path of its program, where that is not the one of its name.
        cwd: Its working directory, where that is not its parent's.
        environment: What it adds to its parent's environment.
        inherited: Cards whose device file it holds though the driver does not list it there.
        keeps_gib: What it keeps of the first of those cards when its parent ends before it.
        stubborn: Whether nothing but SIGKILL ends it, not even the end of its parent.
    """

    pid: int
    parent: int
    user: str
    command: str
    runs: Runs
    shares: tuple[Share, ...] = ()
    type: str = "C"
    cpu: float = 0.0
    rss_gib: float = 0.01
    gib_per_hour: float = 0.0
    name: str | None = None
    threads: int = 1
    leads: bool = False
    where: Place = Place()
    executable: str | None = None
    cwd: str | None = None
    environment: Mapping[str, str] = {}
    inherited: tuple[int, ...] = ()
    keeps_gib: float = 0.0
    stubborn: bool = False


VISITS = Runs(started=75.0, lasts=4 * MINUTE, every=13 * MINUTE)
TRANSCRIPTIONS = Runs(started=-40.0, lasts=2 * MINUTE, every=5 * MINUTE)
