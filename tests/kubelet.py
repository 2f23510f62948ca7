"""A kubelet with its service for pod resources: a real gRPC server in a process of its own.

Run with the path of its socket and of a file. Each call answers what is in the file; without the
file it fails, and while a file with ``.hang`` behind the name exists it does not answer.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tests.screen import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import grpc
    from typing_extensions import Self


def field(number: int, value: str | bytes) -> bytes:
    """A field of a message that is a text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """A number of 7 bits in each byte."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*data, number])


def container(
    devices: Mapping[str, Sequence[str]] | None = None, claims: Sequence[tuple[str, ...]] = ()
) -> bytes:
    """A container with devices by resource, and with claimed ones: driver, device, share."""
    data = field(1, "main")
    for resource, ids in (devices or {}).items():
        # The numbers of a NUMA node, which nobody reads here, follow.
        topology = field(3, field(1, b"\x08\x01"))
        data += field(2, field(1, resource) + b"".join(field(2, id_) for id_ in ids) + topology)
    # CPUs 0 to 2.
    data += field(3, b"\x00\x01\x02")
    for driver, device, *share in claims:
        claimed = field(1, field(1, "k8s.gpu/claim=0")) + field(2, driver) + field(3, "pool")
        claimed += field(4, device) + b"".join(field(5, each) for each in share)
        data += field(5, field(2, "claim") + field(3, "train") + field(4, claimed))
    return data


def pod(name: str, *containers: bytes, namespace: str = "train") -> bytes:
    """A pod of an answer."""
    data = field(1, name) + field(2, namespace) + b"".join(field(3, each) for each in containers)
    return field(1, data)


class Kubelet:
    """A kubelet that runs, and ends as the process does.

    Args:
        folder: Where its socket is.
    """

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "kubelet.sock"
        self._answer = folder / "answer"
        self._hang = folder / "answer.hang"
        self._process: subprocess.Popen[str] | None = None

    def answer(self, message: bytes | None) -> None:
        """Answer this from now on; ``None``: fail."""
        if message is None:
            self._answer.unlink()
            return
        new = self._answer.with_name("new")
        new.write_bytes(message)
        new.rename(self._answer)

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """It does not answer."""
        self._hang.touch()
        yield
        self._hang.unlink()

    def start(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kubelet", str(self.socket), str(self._answer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def kill(self) -> None:
        """End it without a chance to remove its socket."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate(timeout=PATIENCE)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def serve(path: str, answer: Path) -> None:
    """Serve until standard input ends."""
    # Its threads are not wanted in the processes of tests.
    import grpc

    hang = answer.with_name(f"{answer.name}.hang")

    def list_pods(request: bytes, context: grpc.ServicerContext) -> bytes:
        assert request == b""
        while hang.exists():
            time.sleep(0.05)
        try:
            return answer.read_bytes()
        except FileNotFoundError:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            raise

    # It takes the place of an earlier socket, as the kubelet does.
    Path(path).unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(4))
    methods = {"List": grpc.unary_unary_rpc_method_handler(list_pods)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods),)
    )
    server.add_insecure_port(f"unix:{path}")
    server.start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
