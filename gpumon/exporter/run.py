"""``gpumon exporter`` from its first sample to its end."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING

from gpumon.exporter.access import PageAccess
from gpumon.exporter.metrics_page import MetricsPages
from gpumon.exporter.server import MetricsServer
from gpumon.host.process_host import RecordedHost
from gpumon.http.listening import authority, is_loopback, listen, listen_fault
from gpumon.sampling.enrichment import Lookup
from gpumon.sampling.gpu_sampler import sample_for_good
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.text.formatting import printable
from gpumon.text.status_line import StatusLine

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

    from gpumon.host.process_host import ProcessHost
    from gpumon.model.processes import GpuProcess, ProcessId, Workload
    from gpumon.sampling.machine import Machine

_POLL = 0.2


class WorkloadsOnly(RecordedHost):
    """A machine of which nothing else is asked than where its processes run."""

    def __init__(self, host: ProcessHost) -> None:
        self._host = host

    def workloads(self, processes: Sequence[GpuProcess]) -> Mapping[ProcessId, Workload]:
        """See ``ProcessHost.workloads``."""
        return self._host.workloads(processes)


class ListenError(Exception):
    """It is not possible to listen at the address; the message says why and what to do."""


def export(
    machine: Machine,
    address: tuple[str, int],
    interval: float,
    web_config: str | None = None,
    *,
    with_jobs: bool = False,
) -> int:
    """Serve until a signal; the exit status.

    A driver that cannot be used is no reason to end: the page says so, which is what an alert
    needs, and the driver is tried again. The address is a name or a number, empty for every
    address of this machine, and a port, 0 for one that is free. ``with_jobs`` adds what each job
    uses, for which it must be looked up where processes run.

    Raises:
        WebConfigError: The web configuration cannot be used.
        ListenError: It is not possible to listen at the address.
        NoSuchGpuError: The selection names GPUs that the machine does not have.
    """
    host, port = address
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with queue_ending_signals(news), StatusLine(sys.stderr) as status:
        access = PageAccess(web_config, lambda sentence: status.say(printable(sentence)))
        try:
            listener = listen(host, port)
        except OSError as error:
            fault = listen_fault(host, port, error)
            raise ListenError(f"{fault}; choose another address or port with --listen") from None
        pages = MetricsPages(machine.source.hostname, interval, with_jobs=with_jobs)
        with ExitStack() as ending:
            server = MetricsServer(listener, pages.newest, access)
            ending.callback(server.server_close)
            for sentence in _beginning(listener, access, host, interval, web_config):
                status.say(printable(sentence))

            def serve() -> None:
                try:
                    server.serve_forever(_POLL)
                except BaseException as bug:  # noqa: BLE001 - a thread has nobody above it to see this
                    news.put(bug)

            threading.Thread(target=serve, name="gpumon-server", daemon=True).start()
            ending.callback(server.shutdown)
            said = ""

            def say_failure(sentence: str) -> None:
                nonlocal said
                pages.fail()
                if sentence != said:
                    status.say(printable(sentence))
                    said = sentence

            def new_lookup() -> Lookup:
                # As in a log, nothing else about processes is asked.
                return Lookup(
                    WorkloadsOnly(machine.processes) if with_jobs else RecordedHost(),
                    reservations=machine.reservations,
                    allocations=machine.allocations,
                    servers=machine.servers if with_jobs else None,
                )

            sample_for_good(machine.source, interval, new_lookup, news, pages.take, say_failure)
    return 0


def _beginning(
    listener: socket.socket,
    access: PageAccess,
    host: str,
    interval: float,
    web_config: str | None,
) -> list[str]:
    """What to say at the start: the address of the page, and who else can read it."""
    rules = access.rules()
    secured = rules is not None and rules.context is not None
    server = authority(host, listener.getsockname()[1])
    scheme = "https" if secured else "http"
    sentences = [f"serving {scheme}://{server}/metrics, a sample every {interval:g} s"]
    if is_loopback(listener):
        return sentences
    if rules is None or not rules.authenticates:
        sentences.append(
            f"warning: anyone who reaches {server} can read which users have which GPUs: set TLS "
            "and passwords with --web-config, or listen on 127.0.0.1"
        )
    elif not secured:
        sentences.append(
            "warning: passwords cross the network in clear text: add tls_server_config to"
            f" {web_config}"
        )
    return sentences
