"""``gpumon exporter`` on the command line: where it listens, what it says, how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.command import run_gpumon
from tests.driver import Driver, h100
from tests.exporter.exporting import exporting, run_exporter, wait_until
from tests.lives import signal_another_thread
from tests.ports import free_place
from tests.screen import PATIENCE

HASH = "$2b$04$" + "a" * 53


def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_exporter("--demo", "--listen", f"127.0.0.1:{port}")
    said = f"gpumon: cannot listen at 127.0.0.1:{port}: Address already in use; choose another"
    assert (done.returncode, done.stderr) == (2, f"{said} address or port with --listen\n")


def test_a_gpu_that_is_not_there_is_a_sentence() -> None:
    with Driver([h100()]) as driver:
        done = run_gpumon("--gpus", "7", "exporter", "--listen", "127.0.0.1:0", env=driver.env())
    said = "gpumon: There is no GPU 7. This machine has only GPU 0."
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, said)


def test_only_the_chosen_gpus_are_told() -> None:
    with exporting("--demo", "--gpus", "1-2", "-n", "0.5") as exporter:
        scrape = exporter.wait_for(lambda it: it.up == 1, "a sample")
        assert set(scrape.labels("gpumon_gpu_state", "state")) == {"1", "2"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("listen", "number"),
    [("127.0.0.1", signal.SIGTERM), ("localhost", signal.SIGINT), ("127.5.5.5", signal.SIGHUP)],
)
def test_on_loopback_there_is_no_warning_and_a_signal_ends_it_in_good_order(
    listen: str, number: signal.Signals
) -> None:
    with exporting("--demo", "--listen", f"{listen}:0") as exporter:
        assert exporter.end(number) == 0
        assert re.fullmatch(r"gpumon: serving \S+, a sample every 5 s\n", exporter.said)


def test_a_signal_that_another_thread_receives_ends_it() -> None:
    with exporting("--demo") as exporter:
        exporter.wait_for(lambda it: it.up == 1, "a sample")
        signal_another_thread(exporter.process.pid, signal.SIGTERM)
        assert exporter.process.wait(PATIENCE) == 0


@pytest.mark.slow
def test_it_ends_while_the_driver_hangs_and_while_it_is_missing() -> None:
    with Driver([h100()]) as driver:
        with exporting("-n", "0.1", env=driver.env()) as exporter:
            exporter.wait_for(lambda it: it.up == 1, "a sample")
            driver.system.hang()
            driver.cards[0].hang()
            exporter.wait_for(lambda it: it.up == 0, "the hang")
            assert exporter.end() == 0
        driver.system.release()
        driver.cards[0].release()
        driver.fail_init(9)
        with exporting("-n", "0.1", env=driver.env()) as exporter:
            exporter.wait_said("Trying again")
            assert exporter.end() == 0


@pytest.mark.slow
def test_the_port_is_free_again_at_once() -> None:
    place = free_place()
    for _ in range(2):
        with exporting("--demo", "--listen", str(place)) as exporter:
            with urlopen(f"http://{place}/-/healthy", timeout=PATIENCE) as answer:
                assert answer.status == 200
            assert exporter.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("listen", [":0", "0.0.0.0:0"])
def test_who_can_read_it_from_elsewhere_is_a_warning(listen: str) -> None:
    with exporting("--demo", "--listen", listen) as exporter:
        assert exporter.get("/-/healthy").status == 200, "every address is 127.0.0.1 too"
        assert exporter.end() == 0
        assert "gpumon: warning: anyone who reaches " in exporter.said


def test_who_can_read_a_password_on_the_way_is_a_warning(tmp_path: Path) -> None:
    config = tmp_path / "web.yml"
    config.write_text(f"basic_auth_users:\n  ann: {HASH}\n")
    with exporting("--demo", "--listen", ":0", "--web-config", config) as exporter:
        assert exporter.end() == 0
        assert "anyone who reaches" not in exporter.said
        assert "warning: passwords cross the network in clear text" in exporter.said


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_it_listens_on_ipv6() -> None:
    with exporting("--demo", "--listen", "[::1]:0") as exporter:
        exporter.wait_said(r"serving http://\[::1\]:\d+/metrics")
        with socket.create_connection(("::1", exporter.port)) as client:
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.0 200 OK")
        assert exporter.end() == 0
        assert "warning" not in exporter.said


def test_it_needs_no_standard_streams() -> None:
    place = free_place()
    command = f'exec "{sys.executable}" -m gpumon exporter --demo --listen {place}'
    with subprocess.Popen(["sh", "-c", f"{command} <&- >&- 2>&-"]) as process:
        try:

            def answers() -> bool:
                try:
                    # Not a mere connection: one to a free port can meet itself.
                    with urlopen(f"http://{place}/metrics") as page:
                        return bool(page.read())
                except OSError:
                    return False

            wait_until(answers, "an exporter without streams")
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
