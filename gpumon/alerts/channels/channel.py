"""The base of all channels, and an attempt to send a notice, which another thread can cancel."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import unquote

from msgspec import Struct

from gpumon.text.formatting import printable, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpumon.alerts.alert import Alert
    from gpumon.alerts.notice import Notice

CANCELLED = "gpumon ended before it was sent"

_MASK = "***"
_SEPARATORS = re.compile(r"[\s/:@?&=+,;#]+")
_SHORTEST_SECRET = 4
"""Characters; a shorter part of a URL is no secret, and would mask parts of words."""
_MOST_CHARACTERS = 200


class DeliveryError(Exception):
    """A notice was not sent.

    Attributes:
        sentence: Why, without a full stop. Safe to print; without any secret.
        again: Whether another attempt may succeed soon.
    """

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.again = again


class Terminal(Protocol):
    """What a channel uses of the terminal. Threads of ``Deliveries`` call it."""

    def bell(self) -> None:
        """Ring the bell."""

    def notify(self, title: str, text: str) -> None:
        """Show a desktop notification."""


class Attempt:
    """An attempt to send a notice, which another thread can cancel.

    Attributes:
        terminal: The terminal of this program; ``None`` without one.
        is_cancelled: Whether it was cancelled.
    """

    def __init__(self, terminal: Terminal | None = None) -> None:
        self.terminal = terminal
        self.is_cancelled = False
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None

    @contextmanager
    def cancelled_by(self, stop: Callable[[], None]) -> Iterator[None]:
        """Until the end of the block, ``cancel`` calls ``stop``, which must not block.

        Raises:
            DeliveryError: The attempt was cancelled before.
        """
        with self._lock:
            if self.is_cancelled:
                raise DeliveryError(CANCELLED)
            self._stop = stop
        try:
            yield
        finally:
            with self._lock:
                self._stop = None

    def cancel(self) -> None:
        """End what the attempt waits for. Any thread may call this."""
        with self._lock:
            self.is_cancelled = True
            if self._stop is not None:
                self._stop()


class Channel(Struct, frozen=True):
    """A channel of an alert. A subclass declares everything about it, in a file of its own.

    Its fields are what the configuration says; two channels with the same fields are one.
    """

    name: ClassVar[str]
    """Its short name, and its key or text in ``do``."""
    about: ClassVar[str]
    """What it is, for the table in ``docs/alerts.md``."""
    example_value: ClassVar[str] = ""
    """A value of the key ``name`` of its table, in TOML; empty if ``do`` has just its name."""
    keys: ClassVar[tuple[str, ...]] = ()
    """The further keys of its table."""
    needs_terminal: ClassVar[bool] = False

    @classmethod
    def example(cls) -> str:
        """How ``do`` names it, in TOML."""
        return f"{{ {cls.name} = {cls.example_value} }}" if cls.example_value else f'"{cls.name}"'

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:
        """Read its table, which has no unknown keys; ``folder`` is that of the file.

        Raises:
            InvalidValue: A value is invalid.
        """
        raise NotImplementedError

    def describe(self) -> str:
        """The channel without its secrets: a URL can be one, so only its host is named."""
        return self.name

    def send(self, alert: Alert, notice: Notice, attempt: Attempt) -> None:
        """Send a notice, in bounded time and memory.

        Raises:
            DeliveryError: It was not sent.
        """
        raise NotImplementedError

    def failure(self, alert: Alert, notice: Notice, attempt: Attempt) -> DeliveryError | None:
        """Send a notice; why that failed, whatever went wrong."""
        try:
            self.send(alert, notice, attempt)
        except DeliveryError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a thread must go on with the next notice
            # Texts of exceptions are not repeated: they may hold secrets.
            return DeliveryError(f"it met an unexpected error ({type(error).__name__})")
        return None


def masked(text: str, secrets: Iterable[str]) -> str:
    """What a server or a program printed, on one line, safe to print, without secrets.

    Args:
        text: What it printed; it may repeat secrets.
        secrets: URLs, or parts of them, and values of headers: none of their parts is kept.
    """
    line = " ".join(text.split())
    parts = {
        part
        for secret in secrets
        for quoted in _SEPARATORS.split(secret)
        for part in (quoted, unquote(quoted))
        if len(part) >= _SHORTEST_SECRET
    }
    for part in sorted(parts, key=len, reverse=True):
        line = re.sub(re.escape(part), _MASK, line, flags=re.IGNORECASE)
    return shortened(printable(line), _MOST_CHARACTERS)
