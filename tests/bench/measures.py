"""One measurement each: what a program costs, when it shows something, when it obeys."""

from __future__ import annotations

import resource
import subprocess
import time
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from tests.bench.line import Line
from tests.bench.percentiles import percentile
from tests.bench.programs import DATA, DOWN, UP
from tests.bench.sight import amount, effects, first_sight, frames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.machine import Machine, Surroundings
    from tests.bench.programs import Program

MIB = 2**20

_FIRST_SECONDS = 2.5
"""How long a program is given to show something."""
_TURN_BACK = 8
"""Keys in one direction: the cursor stays in sight."""
_SMALL_STEPS = (0.0, 0.013, 0.029, 0.041, 0.057, 0.071, 0.083)
"""Keys come in no step with the frames."""


class Cost(NamedTuple):
    """What a program costs while it does what it is for."""

    cpu: float  # % of a core.
    pss: float | None  # MiB; this and the next but two are ``None`` where nobody says.
    kilobytes: float  # kB a second to the terminal.
    frames: float  # Frames a second.
    calls: float | None  # NVML calls a second.
    inside: float | None  # Milliseconds inside NVML in each second.


def cost(
    program: Program, machine: Surroundings, seconds: float, *, unread: bool = False
) -> tuple[Cost, float]:
    """What a program costs, and how many MiB it grew by; ``unread``: nobody reads its output."""
    machine.pcie_is_free(program.pcie_free)
    with Line(program.command, machine.env()) as line:
        line.read_until(program.after)
        machine.calls()
        began, spent, small = line.now, line.cpu_seconds(), line.pss_bytes()
        if unread:
            line.leave_unread(began + seconds)
        else:
            line.read_until(began + seconds)
        ended = line.now
        took = ended - began
        spent = line.cpu_seconds() - spent
        called = machine.calls()
        memory = line.pss_bytes()
        if line.ended:
            raise RuntimeError(f"{program.name} ended while it was measured")
    return Cost(
        cpu=100 * spent / took,
        # No process holds 0 bytes.
        pss=memory / MIB if memory else None,
        kilobytes=amount(line.output, began, ended) / 1000 / took,
        frames=frames(line.output, began, ended) / took,
        calls=None if called is None else called[0] / took,
        inside=None if called is None else 1000 * called[1] / took,
    ), (memory - small) / MIB


def middle(costs: Sequence[Cost]) -> Cost:
    """The median of each of their numbers; unknown where one of them is."""
    cpu, pss, kilobytes, shown, calls, inside = zip(*costs, strict=True)
    return Cost(
        *(median(cpu), _median(pss), median(kilobytes)),
        *(median(shown), _median(calls), _median(inside)),
    )


def _median(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return median(known) if known and len(known) == len(numbers) else None


class Start(NamedTuple):
    """How soon something true is to be seen, in ms; ``None`` is not within the time given."""

    data: float | None  # The first card's temperature.
    whole: float | None  # A process as well.


def start(program: Program, machine: Machine) -> Start:
    """Start a program and see when it shows something."""
    pid = machine.driver.cards[0].processes[0].pid
    others = {str(owner.pid) for card in machine.driver.cards for owner in card.processes}
    any_process = rf"\b(?:{'|'.join(sorted(others | {str(pid)}))})\b"
    data, whole = first(program, machine, (DATA, any_process))
    return Start(data, whole)


def first(
    program: Program,
    machine: Surroundings,
    patterns: Sequence[str],
    seconds: float = _FIRST_SECONDS,
) -> list[float | None]:
    """Start a program for so long, and see when each pattern stands on the screen, in ms."""
    machine.pcie_is_free(program.pcie_free)
    with Line(program.command, machine.env()) as line:
        line.read_until(seconds)
    found = [first_sight(line.output, pattern) for pattern in patterns]
    return [None if at is None else 1000 * at for at in found]


class Obedience(NamedTuple):
    """How soon a key is seen to work, in ms."""

    half: float  # For half of the keys.
    most: float  # For 99 of a hundred.
    frames: float  # Frames a second meanwhile.
    missed: int  # Keys of which no effect was seen before the next one.
    pressed: int  # All keys.


def obedience(
    program: Program, machine: Machine, count: int, rate: float | None = None, *, hung: bool = False
) -> Obedience:
    """Press arrow keys, and see when the cursor moves.

    The rate is bytes a second of a slow line; a card that has hung does not answer any more.
    """
    assert program.cursor is not None
    machine.pcie_is_free(program.pcie_free)
    gap = 0.16 if rate is None else 0.4
    with Line(program.command, machine.env(), rate) as line:
        line.read_until(program.after if rate is None else program.after + 4.0)
        if hung:
            machine.driver.cards[3].hang()
        # The first only shows where the cursor is.
        line.press(DOWN)
        line.read_until(line.now + 1.0)
        began = line.now
        for number in range(count):
            line.press(DOWN if number // _TURN_BACK % 2 == 0 else UP)
            line.read_until(line.now + gap + _SMALL_STEPS[number % len(_SMALL_STEPS)])
        ended = line.now
        line.read_until(ended + 1.0)
        machine.driver.cards[3].release()
    found = effects(line.output, line.pressed, program.cursor)[1:]
    # A key that was overtaken by the next took longer than there was between them.
    took = [1000 * (gap if seconds is None else seconds) for seconds in found]
    return Obedience(
        percentile(took, 0.5),
        percentile(took, 0.99),
        frames(line.output, began, ended) / (ended - began),
        found.count(None),
        count,
    )


class Once(NamedTuple):
    """What it takes to run a command to its end, in ms: by the clock, and of the processor."""

    wall: float
    cpu: float


def once(command: Sequence[str], machine: Machine) -> Once:
    """Run a command to its end, its output thrown away."""
    before = _of_children()
    began = time.monotonic()
    subprocess.run(
        command, env=machine.env(), stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True
    )
    wall = time.monotonic() - began
    return Once(1000 * wall, 1000 * (_of_children() - before))


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
