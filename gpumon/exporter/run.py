"""``gpumon exporter`` from its first sample to its end."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from gpumon.exporter.access import PageAccess
from gpumon.exporter.metrics_page import MetricsPages
from gpumon.exporter.server import MetricsServer
from gpumon.host.recorded import RecordedHost
from gpumon.http.listening import authority, is_loopback, listen, listen_fault
from gpumon.sampling.collector import Collector
from gpumon.sampling.enrichment import Lookup
from gpumon.sources.source import NoSuchGpuError, SourceError
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.text.formatting import printable
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    import socket

    from gpumon.sampling.enrichment import Reservations
    from gpumon.sources.source import Source

_RETRY_SECONDS = 5.0
"""Seconds after which a driver that could not be used is tried again."""
_POLL = 0.2


class ExporterOptions(NamedTuple):
    """The options of ``gpumon exporter``.

    Attributes:
        host: Where to listen: a name or an address; empty for every address of this machine.
        port: 0 for one that is free.
        interval: Seconds between samples.
        web_config: The file with TLS and passwords; ``None`` without either.
    """

    host: str
    port: int
    interval: float
    web_config: str | None


class ListenError(Exception):
    """It is not possible to listen at the address; the message says why and what to do."""


def export(
    source: Source, options: ExporterOptions, reservations: Reservations | None = None
) -> int:
    """Serve until a signal; the exit status.

    A driver that cannot be used is no reason to end: the page says so, which is what an alert
    needs, and the driver is tried again.

    Args:
        source: The source of samples.
        options: The options.
        reservations: Reads which GPUs ``gpumon run`` has reserved.

    Raises:
        WebConfigError: The web configuration cannot be used.
        ListenError: It is not possible to listen at the address.
        NoSuchGpuError: The selection names GPUs that the machine does not have.
    """
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(news), StatusLine(sys.stderr) as status:
        access = PageAccess(options.web_config, lambda sentence: status.say(printable(sentence)))
        try:
            listener = listen(options.host, options.port)
        except OSError as error:
            fault = listen_fault(options.host, options.port, error)
            raise ListenError(f"{fault}; choose another address or port with --listen") from None
        pages = MetricsPages(source.hostname, options.interval)
        with ExitStack() as ending:
            server = MetricsServer(listener, pages.newest, access)
            ending.callback(server.server_close)
            for sentence in _beginning(listener, access, options):
                status.say(printable(sentence))

            def serve() -> None:
                try:
                    server.serve_forever(_POLL)
                except BaseException as bug:  # noqa: BLE001 - a thread has nobody above it to see this
                    news.put(bug)

            threading.Thread(target=serve, name="gpumon-server", daemon=True).start()
            ending.callback(server.shutdown)
            _Sampling(source, options.interval, reservations, pages, news, status).stay()
    return 0


class _Sampling:
    """Samples until a signal, also after times without a driver.

    Args:
        source: The source of samples.
        interval: Seconds between samples.
        reservations: See ``export``.
        pages: Gets the samples.
        news: ``None`` when told to end, or why a collector ended.
        status: Says what is wrong with the driver.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        reservations: Reservations | None,
        pages: MetricsPages,
        news: SimpleQueue[BaseException | None],
        status: StatusLine,
    ) -> None:
        self._source = source
        self._interval = interval
        self._reservations = reservations
        self._pages = pages
        self._news = news
        self._status = status
        self._said: str | None = None

    def stay(self) -> None:
        """Sample until a signal.

        Raises:
            BaseException: A bug, or the selection names GPUs that are not there.
        """
        while True:
            ended_by = self._sample()
            if ended_by is None:
                return
            if not isinstance(ended_by, SourceError) or isinstance(ended_by, NoSuchGpuError):
                raise ended_by
            self._pages.fail()
            self._say(f"{ended_by.sentence} {ended_by.advice} Trying again.")
            try:
                if self._news.get(timeout=_RETRY_SECONDS) is None:
                    return
            except Empty:
                pass

    def _sample(self) -> BaseException | None:
        """Sample until a signal, or until the source fails; why it failed."""
        # Only reservations are looked up: as in a log, nothing else about processes is asked.
        lookup = Lookup(RecordedHost(), reservations=self._reservations)
        collector = Collector(self._source, self._interval, annotate=lookup.annotate)
        collector.subscribe(self._pages.take, self._news.put)
        with ExitStack() as ending:
            ending.callback(lookup.stop)
            ending.callback(collector.stop)
            collector.start()
            lookup.start()
            return self._news.get()

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            self._status.say(printable(sentence))
            self._said = sentence


def _beginning(listener: socket.socket, access: PageAccess, options: ExporterOptions) -> list[str]:
    """What to say at the start: the address of the page, and who else can read it."""
    rules = access.rules()
    secured = rules is not None and rules.context is not None
    place = authority(options.host, listener.getsockname()[1])
    every = f"{options.interval:g} s"
    scheme = "https" if secured else "http"
    sentences = [f"serving {scheme}://{place}/metrics, a sample every {every}"]
    if is_loopback(listener):
        return sentences
    if rules is None or not rules.authenticates:
        sentences.append(
            f"warning: anyone who reaches {place} can read which users have which GPUs: set TLS and"
            " passwords with --web-config, or listen on 127.0.0.1"
        )
    elif not secured:
        sentences.append(
            "warning: passwords cross the network in clear text: add tls_server_config to"
            f" {options.web_config}"
        )
    return sentences
