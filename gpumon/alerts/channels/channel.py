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
_FILE = "gpumon/alerts/channels/channel.py"


class DeliveryError(Exception):
    """A notice was not sent."""

    def __init__(self, sentence: str, *, again: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        """Why, without a full stop. Safe to print; without any secret."""
        self.again = again
        """Whether another attempt may succeed soon."""


class Terminal(Protocol):
    """What a channel uses of the terminal. Threads of ``Deliveries`` call it."""

    def bell(self) -> None:
        """Ring the bell."""

    def notify(self, title: str, text: str) -> None:
        """Show a desktop notification."""


class Attempt:
    """An attempt to send a notice of an alert, which another thread can cancel."""

    def __init__(self, alert: Alert, notice: Notice, terminal: Terminal | None = None) -> None:
        self.alert = alert
        self.notice = notice
        self.is_cancelled = False
        self._terminal = terminal
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None

    @property
    def terminal(self) -> Terminal:
        """The terminal of this program.

        Raises:
            DeliveryError: It has none.
        """
        if self._terminal is None:
            raise DeliveryError("there is no terminal")
        return self._terminal

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
    """Its short name. ``do`` has a table with this key, or just the name."""
    about: ClassVar[str]
    """What it is, for the table in ``docs/alerts.md``."""
    takes_table: ClassVar[bool] = True
    """Whether ``do`` has a table for it."""
    example_value: ClassVar[str]
    """A value of the key ``name`` of its table, in TOML."""
    keys: ClassVar[tuple[str, ...]] = ()
    """The keys of its table besides ``name``."""
    needs_terminal: ClassVar[bool] = False
    """Whether it needs the terminal in which the dashboard runs."""
    seconds: ClassVar[float]
    """How long sending may take, if it waits for something."""

    @classmethod
    def example(cls) -> str:
        """How ``do`` names it, in TOML."""
        return f"{{ {cls.name} = {cls.example_value} }}" if cls.takes_table else f'"{cls.name}"'

    @classmethod
    def read(cls, table: Mapping[str, object], folder: Path) -> Channel:  # noqa: ARG003 - for subclasses
        """Read its table, which has no unknown keys; paths in it are relative to ``folder``.

        Raises:
            InvalidValue: A value is invalid.
        """
        return cls()

    def describe(self) -> str:
        """The channel without its secrets: a URL can be one, so only its host is named."""
        return self.name

    def send(self, attempt: Attempt) -> None:
        """Send the notice, in bounded time and memory, until ``attempt`` is cancelled.

        Raises:
            DeliveryError: It was not sent.
        """
        raise NotImplementedError

    def try_to_send(self, attempt: Attempt) -> DeliveryError | None:
        """Send the notice; why that failed, whatever went wrong."""
        try:
            self.send(attempt)
        except DeliveryError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a thread must go on with the next notice
            # Texts of exceptions are not repeated: they may hold secrets.
            return DeliveryError(f"an unexpected error occurred ({type(error).__name__})")
        return None


def channels_by_name(*channels: type[Channel]) -> dict[str, type[Channel]]:
    """The channels by name.

    Raises:
        TypeError: A class lacks something, or has an unknown attribute.
    """
    # Not in __init_subclass__: msgspec never frees a class that is refused there.
    for channel in channels:
        _check_declaration(channel)
    return {channel.name: channel for channel in channels}


def _check_declaration(channel: type[Channel]) -> None:
    required = ["name", "about", *(["example_value"] if channel.takes_table else [])]
    missing = [name for name in required if not hasattr(channel, name)]
    if channel.send is Channel.send:
        missing.append("send")
    if missing:
        raise TypeError(f"{channel.__name__} lacks {missing[0]}: {_FILE} describes it")
    # Its own methods and fields, which have __get__, and private names can have any name.
    public = [
        name
        for name, value in vars(channel).items()
        if not name.startswith("_") and not hasattr(value, "__get__")
    ]
    for name in public:
        if name not in Channel.__annotations__:
            raise TypeError(
                f"{channel.__name__} has {name}, which is unknown: {_FILE} lists what it can have"
            )
    if isinstance(channel.keys, str):
        raise TypeError(f'{channel.__name__}.keys must be a tuple, such as ("{channel.keys}",)')


def masked(text: str, secrets: Iterable[str]) -> str:
    """What a server or a program printed, on one line, safe to print, without secrets.

    No part of ``secrets`` is kept: URLs, or parts of them, and values of headers.
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
