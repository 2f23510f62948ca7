"""``gpumon log``: a log without a screen, for tmux, nohup, a service or a job script."""

from __future__ import annotations

import math
import signal
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from gpumon.collector import Collector
from gpumon.commands import log_words as words
from gpumon.commands.telling import Teller
from gpumon.log.naming import log_path
from gpumon.log.recorder import LogError, Recorder
from gpumon.lookup import Lookup
from gpumon.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpumon.host import ProcessHost
    from gpumon.log.recorder import LogStatus
    from gpumon.model import Snapshot
    from gpumon.sources import Source

_PACE = 0.5
"""Seconds between two looks at how it goes, and between two status lines."""
_FIRST_PATIENCE = 60.0
"""Seconds after which the time of ``--for`` runs even though no card has been read yet."""


class Terms(NamedTuple):
    """What was asked for on the command line.

    Attributes:
        path: The log; ``None`` for one with a name of its own in this directory.
        interval: Seconds between samples.
        seconds: How long to log, from the first sample; ``None`` until told to end.
        rotate: Bytes from which on a file is moved aside.
        keep: How many of those are kept.
        commands: Whether command lines are written.
        user: Only this user's processes.
    """

    path: str | None
    interval: float
    seconds: float | None = None
    rotate: int | None = None
    keep: int | None = None
    commands: bool = True
    user: str | None = None


def log(source: Source, host: ProcessHost, terms: Terms) -> int:
    """Log until told to end, and say on standard error, never standard output, how it goes.

    Returns:
        The exit status: 0, or 1 when nothing was logged or the last samples were lost.

    Raises:
        SourceError: The source cannot be opened.
        LogError: The log cannot be.
    """
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with told_by_signals(news), Teller(sys.stderr) as teller:
        run = _Run(source, host, terms, news, teller)
        try:
            with run.going():
                run.stay()
        finally:
            run.tell_the_end()
        return run.exit_status


@contextmanager
def told_by_signals(news: SimpleQueue[BaseException | None]) -> Iterator[None]:
    """Turn what should end this program into news; whoever runs it may have it ignore some.

    A second Ctrl+C acts at once: somebody at the keyboard may have had enough of a slow end.
    """

    def tell(number: int, _: object) -> None:
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        news.put(None)

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in ending}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, tell)
    # A word to the terminal from the background must not stop the log, whatever stty says.
    before[signal.SIGTTOU] = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Diary:
    """The few lines for where no line can be rewritten: what begins and what ends.

    Args:
        teller: Writes them.
        beginning: What to say first.
    """

    def __init__(self, teller: Teller, beginning: str) -> None:
        self._teller = teller
        self._beginning = beginning
        self._begun = False
        self._trouble: str | None = None
        self._silent = ""

    def tell(self, status: LogStatus | None, trouble: str | None, silent: str) -> None:
        """Say what has changed.

        Args:
            status: How the log does; ``None`` before it has begun.
            trouble: What keeps samples from being taken or written.
            silent: Which cards do not answer; empty where all do.
        """
        if status is not None and not self._begun:
            self._begun = True
            self._teller.say(self._beginning)
        kind = None if trouble is None else words.kind_of(trouble)
        if kind != self._trouble:
            self._say_when("it goes on" if trouble is None else trouble, status)
        if silent != self._silent:
            self._say_when(silent or "every card answers again")
        self._trouble, self._silent = kind, silent

    def _say_when(self, sentence: str, status: LogStatus | None = None) -> None:
        now = datetime.fromtimestamp(time.time()).astimezone()
        self._teller.say(f"{now:%Y-%m-%d %H:%M:%S} {words.with_loss(sentence, status)}")


class _Run:
    """One log from its first sample to its last.

    Args:
        source: Where samples come from.
        host: Who knows where the processes run.
        terms: What was asked for.
        news: ``None`` when told to end, or why it has to.
        teller: Tells how it goes.
    """

    def __init__(
        self,
        source: Source,
        host: ProcessHost,
        terms: Terms,
        news: SimpleQueue[BaseException | None],
        teller: Teller,
    ) -> None:
        self._terms = terms
        self._path = log_path(terms.path, source.hostname, time.time())
        self._news = news
        self._teller = teller
        self._recorder = Recorder(
            self._path,
            rotate=terms.rotate,
            keep=terms.keep,
            commands=terms.commands,
            user=terms.user,
        )
        self._lookup = Lookup(host)
        self._collector = Collector(source, terms.interval, annotate=self._lookup.annotate)
        self._collector.subscribe(self._take, news.put)
        self._diary = _Diary(teller, words.beginning(self._path, terms.interval, terms.seconds))
        self._give_up_at = time.monotonic() + _FIRST_PATIENCE
        self._begun = self._refused = False
        self.exit_status = 0

    @contextmanager
    def going(self) -> Iterator[None]:
        """Sample and write within the block."""
        with ExitStack() as ending:
            ending.callback(self._recorder.stop)
            ending.callback(self._lookup.stop)
            ending.callback(self._collector.stop)
            self._collector.start()
            self._lookup.start()
            yield

    def _take(self, snapshot: Snapshot) -> None:
        """Write a snapshot. On the sampling thread, or the one that watches it."""
        # Before the first card is read there is no reason to leave a file behind.
        if not (self._begun or self._refused) and snapshot.gpus:
            self._begin()
        if self._begun:
            self._recorder.take(snapshot)

    def _begin(self) -> None:
        try:
            self._recorder.start()
        except LogError as error:
            self._refused = True
            self._news.put(error)
        else:
            self._begun = True

    def stay(self) -> None:
        """Tell how it goes until the time is over or somebody wants it to end.

        Raises:
            BaseException: Why it cannot go on.
        """
        while (left := self._left()) > 0:
            with suppress(Empty):
                news = self._news.get(timeout=min(_PACE, left))
                if news is not None:
                    raise news
                return
            self._tell()
        if not self._begun:
            self._teller.say("no card could be read in all that time: nothing was logged")
            self.exit_status = 1

    def _left(self) -> float:
        """Seconds until the time is over."""
        if self._terms.seconds is None:
            return math.inf
        if self._begun:
            return self._terms.seconds - self._recorder.status.seconds
        return self._give_up_at + self._terms.seconds - time.monotonic()

    def _tell(self) -> None:
        status = self._recorder.status if self._begun else None
        latest = self._collector.latest
        trouble = words.trouble_of(status, latest, self._terms.interval)
        if self._teller.rewrites:
            self._teller.show(self._line(status, latest, trouble))
        else:
            self._diary.tell(status, trouble, words.silent_cards(latest))

    def _line(
        self, status: LogStatus | None, latest: Snapshot | None, trouble: str | None
    ) -> list[str]:
        """What stands on a terminal, the first things first."""
        if trouble is not None:
            return [f"✖ {words.with_loss(trouble, status)}"]
        if status is None or latest is None:
            return ["○ waiting for the driver"]
        whole = self._terms.seconds
        spent = status.seconds
        return [
            f"● {printable(status.path.name)}",
            words.length(spent) if whole is None else words.progress(spent, whole),
            *words.amounts(status),
            *words.machine(latest, self._terms.user),
        ]

    def tell_the_end(self) -> None:
        """Say what came of it."""
        if not self._begun:
            return
        status = self._recorder.status
        for sentence in words.summary(status):
            self._teller.say(sentence)
        if status.trouble is not None and status.lost:
            self.exit_status = 1
