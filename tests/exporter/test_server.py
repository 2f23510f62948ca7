"""The server: what it answers, and clients that are many, slow, silent or rude."""

from __future__ import annotations

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest

from gpumon.exporter.access import PageAccess
from gpumon.exporter.metrics_page import MetricsPages, Page
from gpumon.exporter.server import MOST_CONNECTIONS, MetricsServer
from gpumon.http.listening import listen
from gpumon.makers.demo import DemoSource
from tests.driver import Driver, h100
from tests.exporter.exporting import Answer, Exporter, Scrape, exporting, wait_until
from tests.screen import PATIENCE

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture(scope="module")
def demo() -> Iterator[Exporter]:
    with exporting("--demo", "-n", "0.5") as exporter:
        exporter.wait_for(lambda scrape: scrape.up == 1, "a sample")
        yield exporter


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the other end closes."""
    received = bytearray()
    try:
        while more := connection.recv(65536):
            received += more
    except ConnectionResetError:
        pass
    return bytes(received)


def test_a_scrape_is_the_text_format_of_prometheus(demo: Exporter) -> None:
    answer = demo.get()
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert len(Scrape(answer.body.decode()).values("DCGM_FI_DEV_GPU_TEMP")) == 7


def test_who_takes_gzip_gets_it_and_nobody_else(demo: Exporter) -> None:
    zipped = demo.get(headers={"Accept-Encoding": "deflate, gzip;q=0.8"})
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert Scrape(gzip.decompress(zipped.body).decode()).up == 1
    assert "Content-Encoding" not in demo.get(headers={"Accept-Encoding": "identity"}).headers


def test_the_root_leads_to_the_metrics_and_health_is_a_page(demo: Exporter) -> None:
    root = demo.get("/")
    assert root.status == 200
    assert b'href="/metrics"' in root.body
    assert demo.get("/-/healthy").status == 200
    assert demo.get("/metrics?format=x").status == 200


@pytest.mark.parametrize("path", ["/metrics/", "/nothing", "/../etc/passwd", "/metrics%00"])
def test_other_paths_are_not_found(demo: Exporter, path: str) -> None:
    answer = demo.get(path)
    assert (answer.status, answer.body) == (404, b"404 Not Found\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", ["/", "/metrics", "/-/healthy"])
def test_other_methods_are_not_allowed(demo: Exporter, method: str, path: str) -> None:
    answer = demo.get(path, method=method, body="x" * 30_000)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


def answer_to(port: int, sent: bytes) -> bytes:
    """All that comes for some bytes."""
    with connected(port) as client:
        client.sendall(sent)
        return all_of(client)


def test_head_is_get_without_the_body(demo: Exporter) -> None:
    head, _, body = answer_to(demo.port, REQUEST.replace(b"GET", b"HEAD")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 ")
    assert b"Content-Length: " in head
    assert body == b""


def test_a_request_of_more_than_sixteen_kibibytes_is_refused(demo: Exporter) -> None:
    start = b"GET /metrics HTTP/1.1\r\nX: "
    fits = start + b"y" * (16_000 - len(start)) + b"\r\n\r\n"
    assert answer_to(demo.port, fits).startswith(b"HTTP/1.0 200 ")
    assert answer_to(demo.port, start.ljust(16_384, b"y")).startswith(b"HTTP/1.0 431 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/9.9\r\n\r\n",
        b"GET /metrics\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /metrics HTTP/1.1\r\nAuthorization: \xff\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nX: " + b"y" * 100_000,
        b"y" * 100_000,
    ],
)
def test_whatever_is_sent_it_goes_on(demo: Exporter, sent: bytes) -> None:
    with connected(demo.port) as client:
        try:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # it has already closed
        all_of(client)
    assert demo.scrape().up == 1
    assert "Traceback" not in demo.said


def test_a_hundred_scrapes_at_once_are_all_answered(demo: Exporter) -> None:
    start = threading.Barrier(100)

    def scrape(_: int) -> Answer:
        start.wait(PATIENCE)
        return demo.get()

    with ThreadPoolExecutor(100) as pool:
        answers = list(pool.map(scrape, range(100)))
    assert [answer.status for answer in answers] == [200] * 100
    pages = {answer.body for answer in answers}
    assert {Scrape(page.decode()).up for page in pages} == {1.0}


def test_a_scrape_takes_no_sample_and_does_not_wait_for_one() -> None:
    with Driver([h100()]) as driver, exporting("-n", "3600", env=driver.env()) as exporter:
        exporter.wait_for(lambda scrape: scrape.values("DCGM_FI_DEV_GPU_TEMP"), "a sample")
        driver.reset_counters()
        first = exporter.get().body
        assert all(exporter.get().body == first for _ in range(50))
        assert "nvmlDeviceGetTemperature" not in driver.calls()


@pytest.fixture
def quick() -> Iterator[MetricsServer]:
    """A server in this process, whose connections may last two seconds."""
    with serving(deadline=2.0) as started:
        yield started


@contextmanager
def serving(**seconds: float) -> Iterator[MetricsServer]:
    """A server with the page of the demo, in this process; see ``MetricsServer`` for its times."""
    source = DemoSource()
    source.open()
    pages = MetricsPages("ada-07", 5.0)
    pages.take(source.sample())
    access = PageAccess(None, lambda _: None)
    server = MetricsServer(listen("127.0.0.1", 0), pages.newest, access, **seconds)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


def port_of(started: MetricsServer) -> int:
    port: int = started.socket.getsockname()[1]
    return port


def test_a_client_that_says_nothing_is_dropped(quick: MetricsServer) -> None:
    with connected(port_of(quick)) as client:
        assert all_of(client) == b""


def test_a_client_that_goes_on_saying_little_is_dropped_all_the_same(quick: MetricsServer) -> None:
    with connected(port_of(quick)) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        wait_until(lambda: not says_more(client), "an end", pause=0.05)


def says_more(client: socket.socket) -> bool:
    try:
        client.sendall(b"y")
    except OSError:
        return False
    return True


def test_a_client_that_does_not_read_is_dropped(quick: MetricsServer) -> None:
    huge = Page(b"x" * 50_000_000, b"")
    quick.newest = lambda: huge
    with connected(port_of(quick)) as client:
        client.sendall(REQUEST)
        wait_until(lambda: quick.connections, "a beginning")
        wait_until(lambda: not quick.connections, "an end")
        assert len(all_of(client)) < 50_000_000


def test_slow_clients_on_every_thread_hold_no_scrape_up() -> None:
    with serving(deadline=3600.0) as started, ExitStack() as open_ones:
        for _ in range(MOST_CONNECTIONS):
            open_ones.enter_context(connected(port_of(started))).sendall(b"GET ")
        wait_until(lambda: started.connections == MOST_CONNECTIONS, "a full server")
        for _ in range(3):
            client = open_ones.enter_context(connected(port_of(started)))
            client.sendall(REQUEST)
            assert all_of(client).startswith(b"HTTP/1.0 200 ")


def test_there_are_never_more_threads_than_are_allowed() -> None:
    with serving() as started, ExitStack() as open_ones:
        for _ in range(2 * MOST_CONNECTIONS):
            open_ones.enter_context(connected(port_of(started)))
        seen = 0
        wait_until(lambda: started.connections == MOST_CONNECTIONS, "a full server")
        for _ in range(50):
            seen = max(seen, sum(one.name == "gpumon-http" for one in threading.enumerate()))
            time.sleep(0.02)
        # One that ends may be seen beside the one that takes its place.
        assert MOST_CONNECTIONS // 2 < seen < 1.5 * MOST_CONNECTIONS


def test_where_no_thread_can_be_started_the_next_client_is_answered(
    quick: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(MOST_CONNECTIONS):
            assert answer_to(port_of(quick), REQUEST) == b""
    assert answer_to(port_of(quick), REQUEST).startswith(b"HTTP/1.0 200 ")


@pytest.mark.slow
def test_a_full_server_can_be_ended() -> None:
    with ExitStack() as open_ones:
        with serving(room_after=3600.0) as started:
            for _ in range(MOST_CONNECTIONS + 1):
                client = open_ones.enter_context(connected(port_of(started)))
            wait_until(lambda: started.connections == MOST_CONNECTIONS, "a full server")
        assert all_of(client) == b""


@pytest.mark.slow
def test_closing_the_server_ends_its_connections() -> None:
    with ExitStack() as open_ones:
        with serving() as started:
            client = open_ones.enter_context(connected(port_of(started)))
            client.sendall(b"GET ")
            wait_until(lambda: started.connections, "the connection")
        assert all_of(client) == b""
