"""The page, its files, and the connection between a browser and the process of its visitor."""

from __future__ import annotations

import asyncio
import html
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import textual_serve
from aiohttp import WSMsgType, web

from gpumon.web.access import Access, is_same
from gpumon.web.visitor import Visitor, bounded_size

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OURS = Path(__file__).parent / "static"
_THEIRS = Path(textual_serve.__file__).parent / "static"
_FILES = {
    "page.css": _OURS / "page.css",
    "page.js": _OURS / "page.js",
    "textual.js": _THEIRS / "js" / "textual.js",
    "xterm.css": _THEIRS / "css" / "xterm.css",
    "RobotoMono.ttf": _THEIRS / "fonts" / "RobotoMono-VariableFont_wght.ttf",
}
"""All files of the page. The programs of the terminal in it are those of textual-serve."""
_USUAL_SIZE = bounded_size(80, 24)
_MOST_BYTES = 65536
"""The longest message of a browser; a paste is one message."""
HEARTBEAT_SECONDS = 15.0
"""Seconds between two questions whether a browser is still there, which has half of it."""
_CLOSE_SECONDS = 2.0
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # xterm.js sets the size of cells in a style element
        "font-src 'self'",
        "img-src 'self' data:",
        # Not every browser counts the WebSocket to be of 'self'.
        "connect-src 'self' ws://{host} wss://{host}",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # An address in a command line is a link in the terminal: it opens nothing.
        "sandbox allow-scripts allow-same-origin",
    )
)


class WebServer:
    """Serves the dashboard.

    Args:
        command: The command that draws it, for one visitor.
        title: The title of the page.
        limit: How many visitors there may be at a time.
        names: The names under which a browser may know this server.
        say: Says a sentence to whoever started the server.

    Attributes:
        access: Who is let in.
    """

    def __init__(
        self,
        command: Sequence[str],
        title: str,
        limit: int,
        names: Collection[str],
        say: Callable[[str], None],
    ) -> None:
        self.access = Access(names)
        self._command = command
        self._limit = limit
        self._say = say
        self._connections: dict[Visitor, web.WebSocketResponse] = {}
        page = (_OURS / "page.html").read_text(encoding="utf-8")
        self._page = page.replace("{{title}}", html.escape(title))

    def application(self) -> web.Application:
        """The application for aiohttp's server."""
        application = web.Application(middlewares=[self._guard])
        application.router.add_get("/{token}", self._without_slash)
        application.router.add_get("/{token}/", self._send_page)
        application.router.add_get("/{token}/ws", self._connect)
        application.router.add_get("/{token}/static/{name}", self._send_file)
        application.on_response_prepare.append(_secure)
        application.on_shutdown.append(self._close_all)
        return application

    @web.middleware  # type: ignore[untyped-decorator, unused-ignore]  # typed only in some versions
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = request.headers
        refusal = self.access.refusal(request.path, headers.get("Host"), headers.get("Origin"))
        if refusal is not None:
            return web.Response(status=403, text=f"{refusal}\n")
        return await handler(request)

    async def _without_slash(self, request: web.Request) -> web.StreamResponse:
        # The addresses in the page are relative, because ssh -L can give it another port.
        raise web.HTTPFound(f"{request.path}/")

    async def _send_page(self, _: web.Request) -> web.StreamResponse:
        if self._is_full:
            return self._too_many()
        return web.Response(text=self._page, content_type="text/html")

    async def _send_file(self, request: web.Request) -> web.StreamResponse:
        path = _FILES.get(request.match_info["name"])
        if path is None:
            raise web.HTTPNotFound
        return web.FileResponse(path)

    @property
    def _is_full(self) -> bool:
        return len(self._connections) >= self._limit

    def _too_many(self) -> web.Response:
        places = "its only visitor is" if self._limit == 1 else f"{self._limit} visitors are"
        text = (
            f"No more visitors: {places} here already. Close another page, and reload this one.\n"
        )
        return web.Response(status=503, text=text)

    async def _connect(self, request: web.Request) -> web.StreamResponse:
        """Run the dashboard of a visitor until either side ends."""
        headers = request.headers
        # Only browsers tell where a page is from, and they tell it with every WebSocket.
        if not is_same(headers.get("Origin"), headers.get("Host")):
            return web.Response(status=403, text="Only a page of this server may connect.\n")
        if self._is_full:
            return self._too_many()
        width, height = (request.query.get(name, "") for name in ("width", "height"))
        is_size = all(one.isascii() and one.isdecimal() and len(one) < 6 for one in (width, height))
        size = bounded_size(int(width), int(height)) if is_size else _USUAL_SIZE
        visitor = Visitor(self._command, size)
        websocket = web.WebSocketResponse(
            timeout=_CLOSE_SECONDS, heartbeat=HEARTBEAT_SECONDS, max_msg_size=_MOST_BYTES
        )
        # Before anything is awaited: the place is taken.
        self._connections[visitor] = websocket
        try:
            await websocket.prepare(request)
            try:
                await visitor.start()
            except OSError as error:
                self._say(f"no dashboard can be started for a visitor: {error.strerror or error}")
                await websocket.close(code=1013)
                return websocket
            sending = asyncio.create_task(_send(visitor, websocket))
            try:
                await _receive(websocket, visitor)
            finally:
                sending.cancel()
                with suppress(asyncio.CancelledError):
                    await sending
        finally:
            try:
                await visitor.end()
            finally:
                del self._connections[visitor]
        return websocket

    async def _close_all(self, _: web.Application) -> None:
        connections = list(self._connections.values())
        await asyncio.gather(*(one.close(code=1001) for one in connections), return_exceptions=True)


async def _send(visitor: Visitor, websocket: web.WebSocketResponse) -> None:
    """Send what the process draws, as fast as the browser takes it, until the process ends."""
    with suppress(ConnectionError):
        while data := await visitor.read():
            await websocket.send_bytes(data)
        await websocket.close()


async def _receive(websocket: web.WebSocketResponse, visitor: Visitor) -> None:
    """Pass on keys and sizes until the browser is gone."""
    with suppress(ConnectionError, asyncio.TimeoutError):
        async for message in websocket:
            if message.type is WSMsgType.TEXT:
                await _take(message.data, websocket, visitor)


async def _take(text: str, websocket: web.WebSocketResponse, visitor: Visitor) -> None:
    """Take a message of textual-serve's front end; anything else is ignored."""
    try:
        message: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return
    match message:
        case ["stdin", str(typed)]:
            await visitor.write(typed.encode("utf-8", "replace"))
        case ["resize", {"width": int(width), "height": int(height)}]:
            visitor.resize(bounded_size(width, height))
        case ["ping", str(said)]:
            await websocket.send_json(["pong", said])


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that keep the page to itself."""
    host = request.headers.get("Host", "")
    response.headers.update(
        {
            # A response to a wrong Host has nothing to connect to; the other hosts are checked.
            "Content-Security-Policy": _POLICY.format(host=host if response.status != 403 else ""),
            "Cache-Control": "no-cache" if isinstance(response, web.FileResponse) else "no-store",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "clipboard-read=(), clipboard-write=()",
            # The address has the token in it.
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
        }
    )
    with suppress(KeyError):
        del response.headers["Server"]
