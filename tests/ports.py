"""Places to listen at for servers that cannot say which free port they have taken."""

from __future__ import annotations

import random
import socket
from typing import NamedTuple

_RANDOM = random.SystemRandom()


class Workload(NamedTuple):
    """An address of this machine and a port of it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def free_place() -> Workload:
    """A place where nobody listens, now and until the test does.

    At 127.0.0.1 another test could get the same port in the meantime; and whoever connects to a
    port without a listener there again and again is in the end connected with itself. So it is
    another address of loopback, a random one.
    """
    host = ".".join(["127", *(str(_RANDOM.randint(1, 254)) for _ in range(3))])
    with socket.create_server((host, 0)) as found:
        return Workload(host, found.getsockname()[1])
