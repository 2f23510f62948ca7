"""``gpumon serve``: who is let in, and what is left of a visitor."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
from aiohttp import web

from gpumon.cli import main
from gpumon.web.server import WebServer
from tests.command import run_here
from tests.driver import Driver, h100
from tests.ports import free_place
from tests.screen import PATIENCE
from tests.web.serving import SERVE, Served, serving, until, visiting

GPU_IS_SHOWN = r"H100"
EVIL = "http://evil.example"
ARGUMENTS = ("-n", "2")
"""Those of the server that most tests visit."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of a machine with one GPU: a dashboard of it costs half of the demo's."""
    with Driver([h100()]) as driver:
        yield {**driver.env(), "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}


@pytest.fixture(scope="module")
def server(machine: dict[str, str]) -> Iterator[Served]:
    """A server for several tests."""
    with serving(*ARGUMENTS, env=machine) as server:
        yield server


@pytest.fixture
async def served(server: Served) -> AsyncIterator[Served]:
    """A server that each test leaves without visitors to the next one."""
    yield server
    await server.wait_children(0)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "65536"], "'65536' is not a port, a number from 0 to 65535"),
        (["--port", "http"], "'http' is not a port"),
        (["--visitors", "0"], "'0' is not a number from 1 to 100"),
        (["--address", "192.0.2.1"], "cannot listen at 192.0.2.1:0: Cannot assign"),
        (["--address", "no.such.name.invalid"], "cannot listen at no.such.name.invalid:0:"),
        (["--theme", "none-such"], "none-such"),
        (["--log", "x.csv"], "--log has no effect on gpumon serve"),
        (["--hosts", "gpu-[02-"], "gpu-[02-"),
        (["--ssh", "ssh"], "--ssh needs --hosts"),
        (["--prometheus", "ftp://x", "--demo"], "leave out --demo or --prometheus"),
        (["--visitor"], "--visitor is for gpumon serve itself: leave it out"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(arguments: list[str], said: str) -> None:
    done = run_here("serve", "--port", "0", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(rf"gpumon: .*{re.escape(said)}.*\n", done.stderr)


def test_a_log_before_the_command_is_refused(tmp_path: Path) -> None:
    log = str(tmp_path / "x.csv")
    done = run(sys.executable, "-m", "gpumon", "--log", log, "serve", "--port", "0")
    assert done.returncode == 2
    assert "--log has no effect on gpumon serve: leave it out." in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_at_either_address_of_localhost_is_a_sentence(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as taken:
        port = taken.getsockname()[1]
        done = run(*SERVE, "--demo", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr == (
        f"gpumon: cannot listen at localhost:{port}: Address already in use; choose another port"
        " with --port, or another address with --address\n"
    )


def test_without_the_extra_a_sentence_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['textual_serve'] = None; sys.argv = ['gpumon', 'serve', '--demo'];"
        "from gpumon.cli import main; sys.exit(main())"
    )
    done = run(sys.executable, "-c", program)
    assert done.returncode == 2
    assert done.stderr == (
        "gpumon: gpumon serve needs textual_serve: install it in a checkout with"
        " pip install '.[web]'\n"
    )


def test_the_address_is_printed_alone_and_the_way_from_elsewhere_is_said(served: Served) -> None:
    assert f"ssh -L {served.port}:localhost:{served.port} " in served.said
    assert "warning" not in served.said
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as client:
            client.connect((host, served.port))


def test_an_address_that_others_reach_is_a_warning() -> None:
    place, everywhere = free_place(), "0.0.0.0"  # noqa: S104 - as somebody may ask for
    process = subprocess.Popen(
        [*SERVE, "--demo", "--address", everywhere, "--port", str(place.port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(f"http://{socket.gethostname()}:{place.port}/")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert said.startswith("gpumon: warning: this address has no TLS: anyone who can read")
    assert f"ssh -L {place.port}:localhost:{place.port}" in said


async def answer_of(
    served: Served, path: str, *, host: str | None = None, origin: str | None = None
) -> tuple[int, str]:
    """The status and the text of an answer."""
    headers = {} if host is None else {"Host": host}
    headers |= {} if origin is None else {"Origin": origin}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{served.origin}{path}", headers=headers, allow_redirects=False) as answer,
    ):
        return answer.status, await answer.text()


async def refusal_of(address: str, origin: str | None) -> int:
    """The status with which a WebSocket is refused."""
    headers = {} if origin is None else {"Origin": origin}
    async with aiohttp.ClientSession(headers=headers) as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(address)
    return refused.value.status


async def test_only_the_token_opens_anything(served: Served) -> None:
    right = served.token
    answers = {"/": 200, "": 302, "/static/textual.js": 200, "/static/..%2Fserver.py": 404}
    for path, status in answers.items():
        assert (await answer_of(served, f"/{right}{path}"))[0] == status, path
    wrong = [right[:-1], right + "x", right.swapcase(), "", "%00", "%ff", "ä"]
    for token in wrong:
        for path in (f"/{token}/", f"/{token}/static/textual.js", f"/{token}/ws", f"/{token}"):
            status, text = await answer_of(served, path)
            assert status == 403, path
            assert right not in text
    assert "the token" in (await answer_of(served, "/"))[1]
    for token in wrong:
        address = f"ws://localhost:{served.port}/{token}/ws"
        assert await refusal_of(address, served.origin) == 403
    assert served.children() == []


async def test_a_foreign_page_gets_nothing_even_with_the_token(served: Served) -> None:
    page = f"/{served.token}/"
    names = ["evil.example", f"evil.example:{served.port}", "localhost.evil.example", "", "a b"]
    for host in names:
        status, text = await answer_of(served, page, host=host)
        # aiohttp itself refuses what is no name.
        assert status in {400, 403}, host
        assert "textual" not in text
    ours = f"127.0.0.1:{served.port}"
    for origin in (EVIL, "null", "http://localhost:1", "http://localhost", "file://"):
        assert (await answer_of(served, page, host=ours, origin=origin))[0] == 403
        for token in (served.token, "wrong"):
            assert await refusal_of(f"ws://localhost:{served.port}/{token}/ws", origin) == 403
    assert await refusal_of(served.socket, None) == 403
    assert served.children() == []
    # The same port under another name of this machine, as behind ssh -L.
    assert (await answer_of(served, page, host="localhost:9000"))[0] == 200
    assert (await answer_of(served, page, host=ours, origin=f"http://{ours}"))[0] == 200


async def test_the_headers_keep_the_page_to_itself(served: Served) -> None:
    async with aiohttp.ClientSession() as session, session.get(served.address) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert f"ws://localhost:{served.port}" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["Cache-Control"] == "no-store"
        assert not re.search(r"(?:src|href)=.https?:", await answer.text())


async def test_a_process_lasts_as_long_as_its_page(served: Served) -> None:
    async with visiting(served) as visit:
        await visit.wait_for(GPU_IS_SHOWN)
        (process,) = await served.wait_children(1)
    await until(lambda: served.are_gone([process]), "end of the process whose page is closed")
    async with visiting(served) as visit:
        await visit.wait_for(GPU_IS_SHOWN)
        (process,) = await served.wait_children(1)
        # A network that fails closes nothing in order.
        visit.cut()
        await until(lambda: served.are_gone([process]), "end of the process whose line is cut")
    async with visiting(served) as visit:
        await visit.wait_for(GPU_IS_SHOWN)
        await visit.type("q")
        await until(lambda: visit.has_ended, "end of the page whose dashboard was left")
    await served.wait_children(0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
async def test_however_the_server_ends_no_process_is_left(
    number: signal.Signals, machine: dict[str, str]
) -> None:
    with serving(env=machine) as served:
        async with visiting(served) as one, visiting(served) as other:
            await one.wait_for(GPU_IS_SHOWN)
            await other.wait_for(GPU_IS_SHOWN)
            processes = await served.wait_children(2)
            served.process.send_signal(number)
            await until(lambda: served.are_gone(processes), "end of all processes")
            status = await asyncio.to_thread(served.process.wait, PATIENCE)
            assert status == (0 if number is not signal.SIGKILL else -signal.SIGKILL)


async def test_a_visitor_who_comes_while_the_server_is_killed_leaves_no_process(
    machine: dict[str, str],
) -> None:
    with serving(env=machine) as served:
        async with visiting(served):
            processes = await served.wait_children(1)
            # It is still importing: the terminal is not its controlling one yet.
            served.process.kill()
            await until(
                lambda: served.are_gone(processes), "end of the process that had just begun"
            )


def test_ten_visitors_may_be_there_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def serve(_: str, __: int, visitors: int, ___: object) -> int:
        asked.append(visitors)
        return 0

    monkeypatch.setattr("gpumon.web.run.serve", serve)
    assert [main(["serve", "--demo", *more]) for more in ([], ["--visitors", "2"])] == [0, 0]
    assert asked == [10, 2]


@pytest.mark.slow
async def test_one_more_visitor_than_may_be_is_told(machine: dict[str, str]) -> None:
    with serving("--visitors", "1", env=machine) as served:
        async with visiting(served) as visit:
            status, text = await answer_of(served, f"/{served.token}/")
            assert status == 503
            assert text.startswith("No more visitors: its only visitor is here already.")
            assert await refusal_of(served.socket, served.origin) == 503
            await visit.wait_for(GPU_IS_SHOWN)
            await visit.leave()
            await served.wait_children(0)
            async with visiting(served) as last:
                await last.wait_for(GPU_IS_SHOWN)


async def test_what_a_browser_should_not_say_changes_nothing(served: Served) -> None:
    async with visiting(served) as visit:
        await visit.wait_for(GPU_IS_SHOWN)
        deep = "[" * 50_000
        for text in ("", "{}", "[]", "[1]", '["stdin"]', '["stdin", 1]', "null", deep, "\\"):
            await visit.websocket.send_str(text)
        await visit.websocket.send_bytes(b"q")
        for width in (-1, 10**30, "1", None, 1e9, True):
            size = {"width": width, "height": 10**9}
            await visit.websocket.send_json(["resize", size])
        await visit.type("\ud800")
        await visit.resize(120, 34)
        await visit.type("?")
        await visit.wait_for("Help|help")
        (process,) = served.children()
        assert process.memory_info().rss < 500 * 1024**2
    await served.wait_children(0)
    assert "Traceback" not in served.said


async def test_a_message_that_is_too_long_ends_only_its_visitor(served: Served) -> None:
    async with visiting(served) as visit, visiting(served) as other:
        await other.wait_for(GPU_IS_SHOWN)
        await visit.type("x" * 70_000)
        await until(lambda: visit.has_ended, "end of the visitor")
        await served.wait_children(1)
        await other.type("?")
        await other.wait_for("[Hh]elp")


async def test_a_size_that_somebody_types_costs_no_memory(served: Served) -> None:
    async with visiting(served) as visit:
        await visit.wait_for(GPU_IS_SHOWN)
        await visit.type("?")
        await visit.wait_for("Esc")
        # As a terminal that reports its size in-band answers, and then reports it.
        await visit.type("\x1b[?2048;2$y")
        await visit.type("\x1b[48;20000;20000;0;0t\x1b")
        await visit.wait_for("PID")
        (process,) = served.children()
        assert process.memory_info().rss < 300 * 1024**2


async def test_options_in_the_address_are_not_passed_on(served: Served) -> None:
    headers = {"Origin": served.origin}
    async with aiohttp.ClientSession(headers=headers) as session:
        query = "width=99999999&height=x&log=/tmp/x&hosts=evil&--log=x&command=id"
        async with session.ws_connect(f"{served.socket}?{query}"):
            (process,) = await served.wait_children(1)
            # Until it runs the program it has the command line of the server.
            await until(lambda: process.cmdline()[1:2] == ["-c"], "start of the program")
            assert process.cmdline()[3:] == ["serve", "--port", "0", *ARGUMENTS, "--visitor"]
            assert served.token not in " ".join([*process.cmdline(), *process.environ().values()])


def test_plain_gpumon_imports_nothing_of_it() -> None:
    program = (
        "import sys; from gpumon.cli import main; status = main(['--demo']);"
        "print(*[one for one in ('aiohttp', 'textual_serve', 'gpumon.web') if one in sys.modules])"
    )
    done = run(sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ""


@asynccontextmanager
async def silent_visitor(program: str) -> AsyncIterator[tuple[psutil.Process, asyncio.Transport]]:
    """A program for a browser that answers nothing, also not whether it is still there."""
    server = WebServer([sys.executable, "-c", program], "", 1, {"localhost"}, print)
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    place = free_place()
    await web.TCPSite(runner, place.host, place.port).start()
    others = set(psutil.Process().children())
    try:
        reader, writer = await asyncio.open_connection(place.host, place.port)
        path = f"/{server.access.token}/ws"
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {place}\r\nOrigin: http://{place}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()
        )
        assert b"101" in await asyncio.wait_for(reader.readline(), PATIENCE)
        await until(lambda: set(psutil.Process().children()) - others, "program of the visitor")
        (process,) = set(psutil.Process().children()) - others
        yield process, writer.transport  # type: ignore[misc]  # that of a connection reads too
        writer.transport.abort()
        await until(lambda: not process.is_running(), "end of the program")
    finally:
        await runner.cleanup()


async def test_a_browser_that_reads_nothing_costs_no_memory() -> None:
    flood = "import os\nwhile True: os.write(1, b'x' * 4000)"
    async with silent_visitor(flood) as (process, transport):
        transport.pause_reading()
        sizes = [0]
        # It waits once all buffers are full; otherwise it would write gigabytes.
        while len(sizes) < 4 or sizes[-1] == 0 or sizes[-1] != sizes[-3]:
            await asyncio.sleep(0.5)
            sizes.append(process.io_counters().write_chars)
            assert sizes[-1] < 50 * 1024**2


@pytest.mark.slow
async def test_a_browser_whose_network_is_dead_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gpumon.web.server.HEARTBEAT_SECONDS", 0.5)
    async with silent_visitor("import time; time.sleep(1000)") as (process, _):
        await until(lambda: not process.is_running(), "end of the program")


@pytest.mark.slow
async def test_a_program_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.web.visitor.END_SECONDS", 0.2)
    stubborn = (
        "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN);"
        "print('on', flush=True); time.sleep(1000)"
    )
    async with silent_visitor(stubborn) as (process, transport):
        await until(lambda: process.io_counters().write_chars > 0, "program that ignores signals")
        transport.abort()
        await until(lambda: not process.is_running(), "end of the program")
