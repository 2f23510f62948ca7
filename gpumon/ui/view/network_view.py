"""The network adapters: their table, and their texts on other lines and pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.host.pci import slot_of
from gpumon.model.arithmetic import known_sum
from gpumon.model.network import RECENT_SECONDS, NicKind
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import (
    UNKNOWN,
    cell_width,
    duration,
    fit,
    fit_right,
    printable,
    shortened,
)
from gpumon.ui.view.page_layout import text_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.network import Nic
    from gpumon.model.snapshot import Gpu, Host

_MOST_NAME = 16
_GAP = 2
_HEADINGS = ("NIC", "KIND", "LINK", "SPEED", "IN", "OUT", "ERRORS", "LOST", "NUMA", "NEAR")
_AT_LEFT = {"NIC", "KIND", "LINK", "NEAR"}
_KEPT = ("NIC", "LINK", "IN", "OUT", "ERRORS", "LOST", "SPEED", "NEAR", "KIND", "NUMA")
"""The columns that stay on a narrow terminal, the first ones longest."""
_KINDS = {NicKind.ETHERNET: "Ethernet", NicKind.INFINIBAND: "InfiniBand", NicKind.ROCE: "RoCE"}
_UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def nic_rows(host: Host, gpus: Sequence[Gpu], now: float, width: int) -> list[Row]:
    """The table of the adapters, every row exactly ``width`` cells.

    Args:
        host: The machine.
        gpus: Its GPUs.
        now: The time, in seconds since the epoch.
        width: Cells.
    """
    if not host.nics:
        unknown = "Network adapters are not known." if host.nics is None else "No network adapters."
        return text_rows(unknown, width, "dim")
    lines = [_cells(nic, gpus, now) for nic in host.nics]
    widths = {
        heading: max(cell_width(heading), *(cell_width(line[heading][0]) for line in lines))
        for heading in _HEADINGS
    }
    kept, used = set[str](), -_GAP
    for heading in _KEPT:
        used += _GAP + widths[heading]
        if used > width and kept:
            break
        kept.add(heading)
    shown = [heading for heading in _HEADINGS if heading in kept]
    titles = {heading: (heading, "heading") for heading in shown}
    rows = [
        fill([field for heading in shown for field in _aligned(heading, line, widths)], width)
        for line in (titles, *lines)
    ]
    warnings = [warning for nic in host.nics if (warning := nic_warning(nic, now))]
    return rows + [
        row for warning in warnings for row in text_rows(warning, width, "state.warning")
    ]


def _aligned(heading: str, line: dict[str, Field], widths: dict[str, int]) -> tuple[Field, Field]:
    text, style = line[heading]
    place = fit if heading in _AT_LEFT else fit_right
    return (place(text, widths[heading]), style), (" " * _GAP, "")


def _cells(nic: Nic, gpus: Sequence[Gpu], now: float) -> dict[str, Field]:
    link = UNKNOWN if nic.up is None else "up" if nic.up else "down"
    lost, failed = _is_recent(nic.link_lost_at, now), _is_recent(nic.errors_at, now)
    texts = (
        (shortened(printable(nic.name), _MOST_NAME), "strong"),
        (_KINDS.get(nic.kind, nic.kind.value), "dim"),
        (link, "" if nic.up is not False else "state.warning" if lost else "dim"),
        (UNKNOWN if nic.speed is None else f"{nic.speed * 8 / 1e9:.4g} Gb/s", "dim"),
        (byte_rate(nic.receive_rate), ""),
        (byte_rate(nic.transmit_rate), ""),
        (_count(nic.errors), "state.warning" if failed else ""),
        (_count(nic.link_losses), "state.warning" if lost else ""),
        (_count(nic.numa_node), ""),
        (_near_text(nic, gpus), ""),
    )
    return dict(zip(_HEADINGS, texts, strict=True))


def _near_text(nic: Nic, gpus: Sequence[Gpu]) -> str:
    """The nearest GPUs, ``GPU 0, 1 (PIX)``."""
    indices = [str(gpu.index) for gpu in gpus if _is_near(nic, gpu)]
    return f"GPU {', '.join(indices)} ({printable(nic.nearness or '')})" if indices else UNKNOWN


def _is_near(nic: Nic, gpu: Gpu) -> bool:
    slot = None if gpu.pci_bus_id is None else slot_of(gpu.pci_bus_id)
    return slot is not None and any(slot_of(near) == slot for near in nic.near)


def near_nics(host: Host, gpu: Gpu) -> list[Nic]:
    """The adapters to which no GPU is nearer than this one."""
    return [nic for nic in host.nics or () if _is_near(nic, gpu)]


def nic_text(nic: Nic) -> str:
    """An adapter in one line, safe to print: ``mlx5_0 (PIX) 11.2 GB/s in, 10.9 GB/s out``."""
    name = f"{printable(nic.name)} ({printable(nic.nearness or '')})"
    return f"{name} down" if nic.up is False else f"{name} {_traffic(nic)}"


def _traffic(nic: Nic) -> str:
    return f"{byte_rate(nic.receive_rate)} in, {byte_rate(nic.transmit_rate)} out"


def host_text(host: Host, now: float) -> Field:
    """All adapters in a few words: a warning, or their traffic; empty if neither is known."""
    warnings = host_warnings(host, now)
    if warnings:
        more = f" +{len(warnings) - 1}" if len(warnings) > 1 else ""
        return f"{warnings[0]}{more}", "state.warning"
    # An adapter without a link has no traffic.
    linked = [nic for nic in host.nics or () if nic.up is not False]
    received = known_sum(nic.receive_rate for nic in linked)
    transmitted = known_sum(nic.transmit_rate for nic in linked)
    if not linked or (received is None and transmitted is None):
        return "", ""
    return f"NIC {byte_rate(received):>9} in, {byte_rate(transmitted):>9} out", "dim"


def host_warnings(host: Host, now: float) -> list[str]:
    """What happened to the adapters a short time ago, safe to print."""
    return [warning for nic in host.nics or () if (warning := nic_warning(nic, now))]


def nic_warning(nic: Nic, now: float) -> str:
    """What happened to an adapter a short time ago, safe to print; empty if nothing was seen."""
    name = shortened(printable(nic.name), _MOST_NAME)
    if nic.link_lost_at is not None and _is_recent(nic.link_lost_at, now):
        ago = duration(max(0.0, now - nic.link_lost_at))
        return f"{name}: link {'down' if nic.up is False else 'lost'} {ago} ago"
    if nic.errors_at is not None and _is_recent(nic.errors_at, now):
        return f"{name}: errors {duration(max(0.0, now - nic.errors_at))} ago"
    return ""


def _is_recent(at: float | None, now: float) -> bool:
    return at is not None and now - at < RECENT_SECONDS


def byte_rate(value: float | None) -> str:
    """Bytes per second, ``23.1 GB/s``, in at most nine cells."""
    if value is None:
        return UNKNOWN
    for size, unit in _UNITS:
        if value >= size * 0.9995:
            return f"{value / size:.1f} {unit}/s"
    return f"{value:.0f} B/s"


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)
