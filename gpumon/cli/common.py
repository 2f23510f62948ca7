"""What several commands do first: where snapshots come from, how standard output is written."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

from gpumon.cli.words import say

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from gpumon.host import ProcessHost
    from gpumon.lookup import Reservations
    from gpumon.reserving import Holder
    from gpumon.sources import Source
    from gpumon.thresholds import Thresholds


def codeset(options: argparse.Namespace) -> str:
    """The encoding of what a person reads."""
    from gpumon.codeset import ASCII, codeset_of, environment

    return ASCII if getattr(options, "ascii", False) else codeset_of(environment())


def source_and_host(options: argparse.Namespace) -> tuple[Source, ProcessHost]:
    """Where snapshots come from, and the processes of the machine that they are of."""
    from gpumon.selection import ALL

    selection = getattr(options, "gpus", ALL)
    readonly = getattr(options, "readonly", False)
    if getattr(options, "demo", False):
        from gpumon.sources.demo import DemoSource

        demo = DemoSource(selection=selection)
        return demo, demo.host(readonly=readonly)
    from gpumon.host.local import LocalHost
    from gpumon.sources.nvml.source import NvmlSource

    return NvmlSource(selection), LocalHost(readonly=readonly)


def reservations(options: argparse.Namespace) -> Reservations | None:
    """Who tells which cards are reserved; nobody for a machine that does not exist."""
    if getattr(options, "demo", False):
        return None

    def holders(cards: Iterable[str]) -> Mapping[str, Holder]:
        # Nobody asks before there is a first picture.
        from gpumon.reserving.looking import holders_now

        return holders_now(cards)

    return holders


def take_output(options: argparse.Namespace, form: str, *, utf_8: bool) -> None:
    """Have standard output write a format: a table is for the person's terminal."""
    if form == "table":
        from gpumon.codeset import take_stream

        take_stream(sys.stdout, codeset(options))
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8" if utf_8 else None, errors="replace")


def take_settings() -> Thresholds:
    """Tell amounts as was settled, and what is wrong with how it was; where lines are drawn."""
    from gpumon.config import load
    from gpumon.units import use_units

    loaded = load()
    for complaint in loaded.complaints:
        say(complaint.sentence)
    use_units(loaded.settings.units)
    return loaded.settings.thresholds


def silence(stream: TextIO) -> None:
    """Send what is still buffered to ``/dev/null``, so that the flush at exit does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
