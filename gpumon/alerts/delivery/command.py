"""Tells a notice by a command: facts in its environment, and as JSON on its standard input."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from gpumon.alerts.delivery.attempt import Attempt, DeliveryError
from gpumon.alerts.delivery.facts import as_environment, facts_of
from gpumon.alerts.delivery.program import run_program, status_in_words

if TYPE_CHECKING:
    from gpumon.alerts.alert import AlertCommand
    from gpumon.alerts.notice import Notice

SECONDS = 10.0
"""How long a command may take."""


def run_command(
    command: AlertCommand, notice: Notice, attempt: Attempt, seconds: float = SECONDS
) -> None:
    """Tell a notice.

    Args:
        command: The command.
        notice: The notice.
        attempt: Kills it when it is cut.
        seconds: How long it may take.

    Raises:
        DeliveryError: It did not start, did not end in time, or ended with another status than 0.
    """
    environment = dict(os.environ)
    for name, value in as_environment(notice).items():
        # That of a gpumon around this one would be mistaken for a fact.
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    given = msgspec.json.encode(facts_of(notice)) + b"\n"
    ended = run_program(command.args, given, seconds, attempt, environment=environment)
    if ended.status != 0:
        raise DeliveryError(status_in_words(ended))
