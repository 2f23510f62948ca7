"""Runs a command on a simulated machine, for people who want to look.

python -m tests.driver --cards h100:4,mig,gb10 --processes 100 --alive -- gpumon
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from .alive import enliven, stir
from .cuda import serving
from .driver import Card, Driver
from .models import MODELS, Model
from .owners import bury, owners, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

UNKNOWN = 999
ALIVE_SECONDS = 0.5
"""How often the processes' own utilisation changes under --alive."""


def _hide_process_memory(card: Card) -> None:
    card.processes = [replace(owner, memory=None) for owner in card.processes]


def _nasty_name(card: Card) -> None:
    card.name = b"NVIDIA \x1b[31mH100\x1b[2J \xff\xfe \xe2\x80\xae"


def _hot(card: Card) -> None:
    card.temperature = 91
    card.clock_event_reasons = 0x60


def _ecc_errors(card: Card) -> None:
    card.ecc_uncorrected_volatile = card.ecc_uncorrected_aggregate = 2
    card.remapped_pending = 1
    card.xid(48)


def _lost(card: Card) -> None:
    card.xid(79)
    card.lost = True


CARD_FAULTS: dict[str, tuple[str, Callable[[Card], None]]] = {
    "lost": ("the card fell off the bus (XID 79)", _lost),
    "hung": ("every call to the card hangs", lambda card: card.hang()),
    "unknown": ("every call to the card fails", lambda card: card.fail(None, UNKNOWN)),
    "slow": ("every call to the card takes 0.2 s", lambda card: card.latency(None, 0.2)),
    "forbidden": ("no permission to open the card", lambda card: card.fail(None, 4)),
    "hot": ("hot, and slowed down for it", _hot),
    "ecc": ("uncorrected ECC errors, a row to be remapped, XID 48", _ecc_errors),
    "growing": (
        "a process list that always outgrows its buffer",
        lambda c: c.grow_processes(10**6),
    ),
    "no-process-memory": ("memory of processes not available", _hide_process_memory),
    "nasty-name": ("a name with escape sequences and broken UTF-8", _nasty_name),
}
DRIVER_FAULTS: dict[str, tuple[str, Callable[[Driver], None]]] = {
    "no-driver": ("the driver is not loaded", lambda driver: driver.fail_init(9)),
    "mismatch": ("driver and library disagree", lambda driver: driver.fail_init(18)),
    "no-permission": ("nvmlInit is not allowed", lambda driver: driver.fail_init(4)),
    "flaky": ("one call in five returns UNKNOWN", lambda driver: driver.random_unknown(0.2)),
}


def _parse_cards(text: str) -> list[Model]:
    """`h100:4,mig` becomes four cards and one."""
    models: list[Model] = []
    for part in text.split(","):
        name, _, count = part.partition(":")
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"no model {name!r}; there are {', '.join(MODELS)}")
        models += [MODELS[name]()] * int(count or 1)
    return models


def _apply_fault(driver: Driver, text: str) -> None:
    name, _, index = text.partition(":")
    if name in DRIVER_FAULTS:
        DRIVER_FAULTS[name][1](driver)
    else:
        CARD_FAULTS[name][1](driver.cards[int(index or 0)])


def _fault(text: str) -> str:
    name = text.partition(":")[0]
    if name not in CARD_FAULTS and name not in DRIVER_FAULTS:
        raise argparse.ArgumentTypeError(f"no fault {name!r}; see --list")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.driver", description=__doc__)
    parser.add_argument(
        "--cards", type=_parse_cards, default="h100:8", help="models and counts, e.g. h100:4,gb10"
    )
    parser.add_argument("--processes", type=int, default=0, metavar="N", help="real owners")
    parser.add_argument("--alive", action="store_true", help="let the values move")
    parser.add_argument(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        metavar="NAME[:CARD]",
        help="see --list",
    )
    parser.add_argument("--driver-version", default="570.124.06")
    parser.add_argument(
        "--without", action="append", default=[], metavar="SYMBOL", help="as old drivers lack it"
    )
    parser.add_argument("--list", action="store_true", help="list card models and faults")
    parser.add_argument("command", nargs="*", help="what to run, after --")
    return parser


def _print_lists() -> None:
    print("cards")
    for name, model in MODELS.items():
        print(f"  {name:<18} {model.__doc__}")
    print("faults of a card (of the first, unless told: lost:2)")
    for name, (words, _) in CARD_FAULTS.items():
        print(f"  {name:<18} {words}")
    print("faults of the driver")
    for name, (words, _) in DRIVER_FAULTS.items():
        print(f"  {name:<18} {words}")


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    try:
        process.wait(ALIVE_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _run(command: Sequence[str], driver: Driver, alive: bool) -> int:
    """Returns the exit code of the command, which gets the terminal and its signals."""
    # A handler, since one that is called is not inherited by the command, as "ignore" would be.
    signal.signal(signal.SIGINT, lambda *_: None)
    dice = random.Random(1)
    with serving(driver), subprocess.Popen(command, env=driver.env()) as process:
        while not _has_ended(process):
            bury(driver)
            if alive:
                stir(driver.cards, dice)
    return process.returncode


def main() -> int:
    """Parses the command line and runs the command."""
    parser = _parser()
    options = parser.parse_args()
    if options.list:
        _print_lists()
        return 0
    if not options.command:
        parser.error("say what to run, after --")
    driver = Driver(options.cards, driver_version=options.driver_version, without=options.without)
    with driver, owners(options.processes) as started:
        driver.open_to_all()
        settle(driver, [process.pid for process in started])
        if options.alive:
            for number, card in enumerate(driver.cards):
                enliven(card, number)
        for fault in options.fault:
            _apply_fault(driver, fault)
        return _run(options.command, driver, options.alive)


if __name__ == "__main__":
    sys.exit(main())
