"""``gpumon serve`` from its address to its end."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from contextlib import ExitStack, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING

from gpumon.http.listening import authority, is_loopback, listen, listen_fault
from gpumon.system.ending_signals import queue_ending_signals
from gpumon.text.formatting import printable
from gpumon.text.status_line import StatusLine, tell
from gpumon.web.visitor import gpumon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.web.server import WebServer

LOCALHOST = "localhost"
_EVERYWHERE = {"", "0.0.0.0", "::"}  # noqa: S104 - what a user may ask for
_BACKLOG = 64
_TRIES = 20
"""How often a free port is looked for that is free at all addresses of ``localhost``."""
_SHUTDOWN_SECONDS = 5.0
_WARNING = (
    "warning: this address has no TLS: anyone who can read the network traffic gets the address,"
    " users and command lines. Safer: leave out --address, and use {tunnel}"
)


class ServeError(Exception):
    """It cannot be served; the message says why and what to do."""


def serve(address: str, port: int, visitors: int, arguments: Sequence[str]) -> int:
    """Serve until a signal; the exit status.

    Args:
        address: Where to listen: ``localhost``, a name or an address; ``0.0.0.0`` is every address.
        port: 0 for one that is free.
        visitors: Maximum number of visitors at a time.
        arguments: The arguments with which this program shows the dashboard of a visitor.

    Raises:
        ServeError: The extra ``web`` is not installed, or it is not possible to listen there.
    """
    try:
        from gpumon.web import server as web_server
    except ImportError as error:
        raise ServeError(
            f"gpumon serve needs {error.name or 'textual-serve'}: install it in a checkout with"
            " pip install '.[web]'"
        ) from None
    news: SimpleQueue[BaseException | None] = SimpleQueue()
    with ExitStack() as ending:
        ending.enter_context(queue_ending_signals(news))
        status = ending.enter_context(StatusLine(sys.stderr))

        def say(sentence: str) -> None:
            status.say(printable(sentence))

        try:
            listeners = open_listeners(address, port)
        except OSError as error:
            fault = listen_fault(address, port, error)
            raise ServeError(
                f"{fault}; choose another port with --port, or another address with --address"
            ) from None
        for listener in listeners:
            ending.callback(listener.close)
        machine = socket.gethostname()
        server = web_server.WebServer(
            gpumon(arguments),
            f"gpumon: {machine}",
            visitors,
            _names(address, machine),
            say,
        )
        shown = machine if address in _EVERYWHERE else address
        port = listeners[0].getsockname()[1]
        tunnel = f"ssh -L {port}:localhost:{port} {machine}"
        if all(is_loopback(listener) for listener in listeners):
            tell(f"for a browser on another machine, run there: {printable(tunnel)}")
        else:
            tell(_WARNING.format(tunnel=printable(tunnel)))
        # Not by the status line's thread: the address comes after it.
        tell("the dashboard, read-only, until Ctrl+C:")
        sys.stdout.write(f"http://{authority(shown, port)}/{server.access.token}/\n")
        sys.stdout.flush()
        asyncio.run(_serve(server, listeners, news))
    return 0


async def _serve(
    server: WebServer, listeners: Sequence[socket.socket], news: SimpleQueue[BaseException | None]
) -> None:
    from aiohttp import web

    # Its log of requests would have the token.
    runner = web.AppRunner(
        server.application(), access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS
    )
    await runner.setup()
    try:
        for listener in listeners:
            await web.SockSite(runner, listener, backlog=_BACKLOG).start()
        await asyncio.get_running_loop().run_in_executor(None, news.get)
    finally:
        # For the thread above, if something else has failed.
        news.put(None)
        await runner.cleanup()


def open_listeners(address: str, port: int) -> list[socket.socket]:
    """The listening sockets: for ``localhost`` at each of its addresses.

    Otherwise another user of this machine could listen at the other one, and would get the token
    from browsers that try it first.

    Args:
        address: A name or an address.
        port: 0 for one that is free.

    Raises:
        OSError: It cannot listen there.
    """
    if address != LOCALHOST:
        return [listen(address, port)]
    for _ in range(_TRIES - 1):
        with suppress(OSError):
            return _listen_at_localhost(port)
        if port:
            break
    return _listen_at_localhost(port)


def _listen_at_localhost(port: int) -> list[socket.socket]:
    listeners = [socket.create_server(("127.0.0.1", port))]
    try:
        port = listeners[0].getsockname()[1]
        listeners.append(socket.create_server(("::1", port), family=socket.AF_INET6))
    except OSError as error:
        # Without IPv6 nobody else can listen there.
        if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
            listeners[0].close()
            raise
    return listeners


def _names(address: str, machine: str) -> set[str]:
    """The names under which a browser may know the server."""
    names = {LOCALHOST, machine, machine.partition(".")[0]}
    if address != LOCALHOST:
        # May ask name servers, so not where nobody else can connect.
        names |= {address, socket.getfqdn()}
    return names
