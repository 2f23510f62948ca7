"""``gpumon exporter``: serve metrics to Prometheus."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from gpumon.cli.common import reservations, source_and_host
from gpumon.cli.messages import EXIT_USAGE, explain, fail
from gpumon.cli.options import add_interval, add_machine, drawing

if TYPE_CHECKING:
    from gpumon.cli.help import MakeParser

_INTERVAL = 5.0
_LISTEN = "127.0.0.1:9835"


def add_options(command: MakeParser) -> None:
    """Add ``gpumon exporter`` to the parser."""
    exporter = command(
        parents=[drawing()],
        description="Serve metrics of GPUs and users to Prometheus over HTTP until Ctrl+C or "
        "SIGTERM, with the names of NVIDIA's dcgm-exporter. docs/exporter.md describes the "
        "metrics, TLS and passwords.",
    )
    exporter.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        type=_address,
        default=_LISTEN,
        help="where to listen; :9835 is every address of this machine (default: %(default)s)",
    )
    add_interval(exporter, _INTERVAL)
    exporter.add_argument(
        "--web-config",
        metavar="FILE",
        help="TLS and passwords, in the format of Prometheus' exporters; read again when it "
        "changes",
    )
    add_machine(exporter)


def _address(text: str) -> tuple[str, int]:
    """An address and a port."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\s:\[\]/]*)):([0-9]{1,5})", text)
    if match is None or int(match[3]) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address with a port, such as 127.0.0.1:9835, [::1]:9835 or :9835"
        )
    return match[1] or match[2] or "", int(match[3])


def run(options: argparse.Namespace) -> int:
    """Serve until a signal; the exit status."""
    from gpumon.exporter.run import ExporterOptions, ListenError, export
    from gpumon.exporter.web_config import WebConfigError
    from gpumon.sources.source import SourceError

    source, _ = source_and_host(options)
    host, port = options.listen
    terms = ExporterOptions(host, port, options.interval or _INTERVAL, options.web_config)
    try:
        return export(source, terms, reservations(options))
    except (WebConfigError, ListenError) as error:
        return fail(str(error), EXIT_USAGE)
    except SourceError as error:
        return explain(error)
