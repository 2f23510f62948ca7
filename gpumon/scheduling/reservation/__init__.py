"""Who has a card for now: a lock for each, that all users of the machine see.

``folder`` finds a place for the locks that nobody can lead astray, ``locks`` takes and reads them,
``queue`` keeps the order of those who wait.
"""

from __future__ import annotations

from msgspec import Struct

from gpumon.text.formatting import duration, printable


class Holder(Struct, frozen=True):
    """Who has reserved a card. ``None`` is unknown.

    Attributes:
        user: The owner of that process, as the system tells it.
        pid: The process that wrote itself down as the holder, and lives.
        since: When it took the card, as it wrote down itself.
        command: What it runs there, likewise; not safe to print.
    """

    user: str | None = None
    pid: int | None = None
    since: float | None = None
    command: str = ""

    def sentence(self, now: float) -> str:
        """The same for a person, safe to print: ``reserved by ann for 12m: python train.py``."""
        if self.pid is None:
            return "reserved; by whom cannot be seen here"
        words = "reserved"
        if self.user is not None:
            words += f" by {printable(self.user)}"
        if self.since is not None:
            words += f" for {duration(now - self.since)}"
        words += f", gpumon run {self.pid}"
        return f"{words}: {printable(self.command)}" if self.command else words
