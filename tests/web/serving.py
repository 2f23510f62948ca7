"""``gpumon serve`` as people run it, and visitors that speak to it as a browser does."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
import psutil
import pyte

from tests.known import known
from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

SERVE = [sys.executable, "-m", "gpumon", "serve"]
_PAUSE = 0.05


class Served:
    """A ``gpumon serve`` that runs.

    Attributes:
        process: The server.
        address: The address that it printed.
        port: Where it listens at ``localhost``.
        token: The token in the address.
    """

    def __init__(self, process: subprocess.Popen[str], stderr: Path) -> None:
        self.process = process
        self._stderr = stderr
        self.address = known(process.stdout).readline().strip()
        found = re.fullmatch(r"http://localhost:(\d+)/([\w-]{32})/", self.address)
        assert found, (self.address, self.said)
        self.port, self.token = int(found[1]), found[2]

    @property
    def said(self) -> str:
        """All that it has written to standard error."""
        return self._stderr.read_text(encoding="utf-8")

    @property
    def origin(self) -> str:
        """The origin of its page."""
        return f"http://localhost:{self.port}"

    @property
    def socket(self) -> str:
        """The address of its WebSocket."""
        return f"{self.address}ws".replace("http", "ws", 1)

    def children(self) -> list[psutil.Process]:
        """The processes of its visitors, and theirs."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def are_gone(self, processes: Sequence[psutil.Process]) -> bool:
        """Whether all these processes have ended, and none is left to this server as a zombie."""
        return not any(map(self._is_there, processes))

    def _is_there(self, process: psutil.Process) -> bool:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                return True
            # Who takes over the processes of a server that was killed may leave them.
            return process.ppid() == self.process.pid and self.process.poll() is None
        except psutil.NoSuchProcess:
            return False

    async def wait_children(self, count: int) -> list[psutil.Process]:
        """Wait until it has this many visitors."""
        await until(lambda: len(self.children()) == count, f"{count} processes of visitors")
        return self.children()


@contextmanager
def serving(
    *arguments: str, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[Served]:
    """Run ``gpumon serve`` at a free port; at the end it has ended."""
    with tempfile.TemporaryDirectory() as told, (Path(told) / "stderr").open("w+") as stderr:
        process = subprocess.Popen(
            [*SERVE, "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=env,
            cwd=folder,
        )
        with process:
            try:
                yield Served(process, Path(stderr.name))
            finally:
                process.terminate()
                try:
                    process.wait(PATIENCE)
                finally:
                    process.kill()


async def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:g} s"
        await asyncio.sleep(_PAUSE)


class Visit:
    """A visitor: what the page of textual-serve does, with a terminal in memory.

    Attributes:
        websocket: The connection.
    """

    def __init__(
        self, websocket: aiohttp.ClientWebSocketResponse[bool], size: tuple[int, int]
    ) -> None:
        self.websocket = websocket
        self._screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self.bytes = 0
        self._taking = asyncio.create_task(self._take())

    async def _take(self) -> None:
        async for message in self.websocket:
            if message.type is aiohttp.WSMsgType.BINARY:
                self.bytes += len(message.data)
                self._stream.feed(message.data)

    @property
    def has_ended(self) -> bool:
        """Whether the server has closed the connection."""
        return self._taking.done()

    def text(self) -> str:
        """What stands on its screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    async def wait_for(self, pattern: str) -> None:
        """Wait until something stands on its screen."""
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, self.text()):
            assert time.monotonic() < deadline, f"no {pattern!r} on this screen:\n{self.text()}"
            await asyncio.sleep(_PAUSE)

    async def type(self, keys: str) -> None:
        """Press keys."""
        await self.websocket.send_json(["stdin", keys])

    async def press(self, keys: str, shown: str) -> None:
        """Press keys, and wait until what they lead to stands on its screen."""
        await self.type(keys)
        await self.wait_for(shown)

    async def resize(self, columns: int, lines: int) -> None:
        """Change the size of the window."""
        self._screen.resize(lines, columns)
        await self.websocket.send_json(["resize", {"width": columns, "height": lines}])

    def cut(self) -> None:
        """Lose the connection, without a word to the server."""
        self.websocket._response.close()

    async def leave(self) -> None:
        """Close the page."""
        await self.websocket.close()
        await self._taking


@asynccontextmanager
async def visiting(served: Served, columns: int = 120, lines: int = 34) -> AsyncIterator[Visit]:
    """Visit the server."""
    headers = {"Origin": served.origin}
    async with aiohttp.ClientSession(headers=headers) as session:
        address = f"{served.socket}?width={columns}&height={lines}"
        visit = Visit(await session.ws_connect(address), (columns, lines))
        try:
            yield visit
        finally:
            await visit.leave()
