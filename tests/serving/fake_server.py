"""A server that answers as a test wants, run as a real process with the command line of another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.host.programs import identity
from tests.lives import until
from tests.ports import free_place
from tests.serving import answers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.processes import ProcessId

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{{engine="0",model_name="qwen"}} {running}.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{{engine="0",model_name="qwen"}} {waiting}.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{{engine="0",model_name="qwen"}} {kv_cache}
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{{engine="0",model_name="qwen"}} {prompt_tokens}.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{{engine="0",model_name="qwen"}} {tokens}.0
# TYPE vllm:request_success_total counter
vllm:request_success_total{{engine="0",finished_reason="stop",model_name="qwen"}} {requests}.0
vllm:request_success_total{{engine="0",finished_reason="length",model_name="qwen"}} 0.0
"""
"""As vLLM 0.11 answers, without what is not read."""


def vllm_text(
    running: int = 0,
    waiting: int = 0,
    kv_cache: float = 0.0,
    prompt_tokens: int = 0,
    tokens: int = 0,
    requests: int = 0,
) -> str:
    return VLLM.format(
        running=running,
        waiting=waiting,
        kv_cache=kv_cache,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        requests=requests,
    )


def ok(text: str) -> bytes:
    return answer("200 OK", text.encode())


def answer(status: str, body: bytes = b"", *headers: str) -> bytes:
    """An answer with this status."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


class FakeServer:
    """A running server.

    Args:
        folder: An empty folder for it.
        name: The name of its program.
        arguments: Its arguments; ``{port}`` stands for its port here and in the prefix.
        prefix: What comes before the interpreter, such as another program that runs it.
        host: The address that it listens at; by default one of the loopback interface.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "vllm",
        arguments: Sequence[str] = ("serve", "Qwen/Qwen2.5-14B-Instruct", "--port", "{port}"),
        prefix: Sequence[str] = (),
        host: str | None = None,
    ) -> None:
        self._folder = folder
        place = free_place()
        self.host, self.port = host or place.host, place.port
        folder.joinpath("place").write_text(f"{self.host}:{self.port}")
        self.answer(ok(vllm_text()))
        program = folder / name
        program.write_text(Path(answers.__file__).read_text())
        words = [word.format(port=self.port) for word in arguments]
        before = [word.format(port=self.port) for word in prefix]
        self.process = subprocess.Popen(
            [*before, sys.executable, str(program), *words], start_new_session=True
        )

    def __enter__(self) -> FakeServer:
        listens = self._folder / "listens"
        until(lambda: listens.exists() or self.process.poll() is not None, "that it listens")
        assert self.process.poll() is None, "it has ended"
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def answer(self, wanted: bytes) -> None:
        new = self._folder / "answer.new"
        new.write_bytes(wanted)
        new.replace(self._folder / "answer")

    @property
    def id(self) -> ProcessId:
        return identity(self.process.pid)

    @property
    def requests(self) -> list[str]:
        """What it was asked, each request with its headers."""
        file = self._folder / "requests"
        return file.read_bytes().decode().split("\0")[:-1] if file.exists() else []
