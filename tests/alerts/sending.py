"""Alerts, a notice and a terminal, for the tests of channels and of deliveries."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gpumon.alerts.alert import Alert
from gpumon.alerts.channels.channel import Attempt
from gpumon.alerts.notice import Notice
from gpumon.findings.finding import Severity
from tests.exporter.exporting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.alerts.channels.channel import Channel, DeliveryError

NOTICE = Notice(
    alert="broken",
    key="gpu:GPU-1a2b",
    host="gpu-04",
    at=1_700_000_000.25,
    since=1_699_999_940.0,
    severity=Severity.CRITICAL,
    title="gpu-04 GPU 3: lost",
    sentence="GPU 3 (H100) of gpu-04: <the driver> cannot reach it & it is 90 °C; reset it",
    gpu_index=3,
    gpu_uuid="GPU-1a2b",
)


def alert_with(*channels: Channel) -> Alert:
    return Alert(name="broken", when="lost", channels=channels, cooldown=3600.0)


def refusal(channel: Channel) -> DeliveryError | None:
    """Send a notice now: ``None``, or why it was not sent."""
    error = channel.try_to_send(Attempt(alert_with(channel), NOTICE))
    assert error is None or error.sentence.isprintable()
    return error


def failure(channel: Channel) -> str | None:
    """See ``refusal``."""
    return None if (error := refusal(channel)) is None else error.sentence


class Terminal:
    """Keeps what it shows; raises ``error`` if there is one, and waits until ``gate`` is set."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.calls = 0
        self.error: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def bell(self) -> None:
        self._show("bell")

    def notify(self, title: str, text: str) -> None:
        self._show(f"{title}|{text}")

    def _show(self, what: str) -> None:
        self.calls += 1
        self.gate.wait()
        if self.error is not None:
            raise self.error
        self.shown.append(what)


def threads() -> list[str]:
    """The threads of deliveries that run."""
    return [thread.name for thread in threading.enumerate() if thread.name == "gpumon-delivery"]


def no_threads_left() -> Iterator[None]:
    """A fixture: a test leaves no thread behind."""
    yield
    wait_until(lambda: not threads(), "the end of the threads")
