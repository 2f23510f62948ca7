"""Many simulated hosts behind one HTTP server, each with the page of a dcgm-exporter."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from uuid import NAMESPACE_DNS, uuid5

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

DEFAULT_COUNTERS: Mapping[str, float] = {
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_DEV_MEM_CLOCK": 2619,
    "DCGM_FI_DEV_MEMORY_TEMP": 55,
    "DCGM_FI_DEV_GPU_TEMP": 48,
    "DCGM_FI_DEV_POWER_USAGE": 312.5,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 123456789,
    "DCGM_FI_DEV_GPU_UTIL": 91,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 37,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_FB_FREE": 40000,
    "DCGM_FI_DEV_FB_USED": 41000,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
}
"""Metrics of dcgm-exporter's ``etc/default-counters.csv``, and a value of each."""


def page(
    host: str,
    values: Mapping[str, float] = DEFAULT_COUNTERS,
    gpus: int = 8,
    *,
    label: str = "Hostname",
    more: str = "",
) -> str:
    """The page of one host, as dcgm-exporter writes it, with the same values for each GPU.

    Its name is in ``label``; each series has ``more`` labels, such as ``,pod="train-0"``.
    """
    lines = []
    for name, value in values.items():
        lines.append(f"# TYPE {name} gauge")
        for gpu in range(gpus):
            labels = (
                f'gpu="{gpu}",UUID="{uuid(host, gpu)}",pci_bus_id="00000000:{gpu + 16:02X}:00.0",'
                f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",{label}="{host}"{more}'
            )
            lines.append(f"{name}{{{labels}}} {value}")
    return "\n".join(lines) + "\n"


def uuid(host: str, gpu: int) -> str:
    return f"GPU-{uuid5(NAMESPACE_DNS, f'{gpu}.{host}')}"


class Exporters:
    """An HTTP server on loopback with one page a host at ``/HOST/metrics``.

    ``pages`` makes the page of a host; an exception answers with status 500.
    """

    def __init__(self, pages: Callable[[str], str]) -> None:
        self.pages = pages
        exporters = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                try:
                    body = exporters.pages(self.path.split("/")[1]).encode()
                    status = 200
                except LookupError:
                    body, status = b"", 500
                self.send_response(status)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def target(self, host: str, job: str = "dcgm", **labels: str) -> tuple[str, dict[str, str]]:
        """What a Prometheus scrapes for a host of a job: the address, and the labels."""
        place = {"__metrics_path__": f"/{host}/metrics", "instance": f"{host}:9400", "job": job}
        return f"127.0.0.1:{self.port}", {**place, **labels}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
