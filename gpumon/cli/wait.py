"""``gpumon wait`` on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.cli.help import RawFormatter
from gpumon.cli.messages import EXIT_USAGE, explain, fail
from gpumon.cli.scheduling import whole_machine
from gpumon.scheduling.options import add_options as add_cards
from gpumon.scheduling.wait.options import add_options, fault, terms

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpumon.cli.help import Command


def add_wait(command: Command, parents: Sequence[argparse.ArgumentParser]) -> None:
    """Add ``gpumon wait`` to the parser."""
    wait = command(
        parents=list(parents),
        description="Wait until gpumon select would succeed, until cards are idle or cool, or "
        "until processes\nhave ended:\n"
        "  gpumon wait -n 2 --free 20G --notify\n"
        "  gpumon wait --pid 4711 && ./next-step\n"
        "Standard error says who holds what, and since when. docs/wait.md.",
        formatter_class=RawFormatter,
    )
    add_options(wait)
    add_cards(wait)


def run_wait(options: argparse.Namespace) -> int:
    """``gpumon wait``."""
    wrong = fault(options)
    if wrong is not None:
        return fail(wrong, EXIT_USAGE)
    from gpumon.recording import RecordingError
    from gpumon.scheduling.allocation import UncertainAllocationError
    from gpumon.scheduling.wait.wait import wait
    from gpumon.sources import SourceError

    try:
        return wait(whole_machine(options)[0], terms(options))
    except SourceError as error:
        return explain(error)
    except (RecordingError, UncertainAllocationError) as error:
        return fail(error.sentence)
