"""Finds the GPUs that a DRM driver runs."""

from __future__ import annotations

import os
import re

from msgspec import Struct

from gpumon.host.power import read_word

_CARD = re.compile(r"card[0-9]{1,4}")
"""A card, and not one of its connectors (``card0-DP-1``)."""

_RENDER = re.compile(r"renderD([0-9]{1,4})")

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class DrmCard(Struct, frozen=True):
    """A PCI device with a DRM driver.

    Attributes:
        bus_id: Its PCI bus ID as the kernel writes it: ``0000:03:00.0``.
        folder: Its folder below ``/sys/devices``, with all symbolic links resolved.
        driver: Name of its driver: ``amdgpu``, ``i915``, ``xe``.
        node: Name of its primary node: ``card0``.
        render_minor: Number in the name of its render node (``renderD128``); ``None`` without one.
        vendor: PCI vendor ID.
        device: PCI device ID.
        revision: PCI revision.
    """

    bus_id: str
    folder: str
    driver: str
    node: str
    render_minor: int | None
    vendor: int | None
    device: int | None
    revision: int | None


def find_cards(drivers: tuple[str, ...], sys: str = "/sys") -> list[DrmCard]:
    """The GPUs of these drivers, sorted by bus ID.

    Reads only links and IDs, which the kernel has in memory: no GPU wakes.

    Args:
        drivers: Names of drivers.
        sys: Where the system file system is mounted.
    """
    found = list_nodes(drivers, sys)
    return sorted((_card(*one) for one in found), key=_bus_order)


def list_nodes(drivers: tuple[str, ...], sys: str = "/sys") -> list[tuple[str, str, str]]:
    """Node, folder and driver of each GPU, in no order: the cheap part of ``find_cards``."""
    parent = f"{sys}/class/drm"
    try:
        names = os.listdir(parent)  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return []
    found = []
    for name in names:
        if _CARD.fullmatch(name):
            device = f"{parent}/{name}/device"
            try:
                # A virtual function without a driver has no such link.
                driver = os.path.basename(os.readlink(f"{device}/driver"))  # noqa: PTH115, PTH119 - as above
            except OSError:
                continue
            if driver in drivers:
                folder = os.path.realpath(device)
                # Partitions of a GPU are platform devices, which have no values of their own.
                if _PCI.fullmatch(folder.rpartition("/")[2]):
                    found.append((name, folder, driver))
    return found


def partition_nodes(drivers: tuple[str, ...], sys: str = "/sys") -> frozenset[str]:
    """Names of nodes that belong to a partition of a GPU (``amdgpu_xcp``), of whichever GPU."""
    parent = f"{sys}/class/drm"
    try:
        names = os.listdir(parent)  # noqa: PTH208 - as above
    except OSError:
        return frozenset()
    prefixes = tuple(f"{driver}_" for driver in drivers)
    found = set()
    for name in names:
        if _CARD.fullmatch(name) or _RENDER.fullmatch(name):
            folder = os.path.realpath(f"{parent}/{name}/device")
            if "/platform/" in folder and folder.rpartition("/")[2].startswith(prefixes):
                found.add(name)
    return frozenset(found)


def driver_version(driver: str, sys: str = "/sys", proc: str = "/proc") -> str:
    """Version of a driver: its own if it is not part of the kernel, else the kernel's."""
    own = read_word(f"{sys}/module/{driver}/version")
    kernel = read_word(f"{proc}/sys/kernel/osrelease")
    return own or kernel or os.uname().release


def _card(node: str, folder: str, driver: str) -> DrmCard:
    return DrmCard(
        bus_id=folder.rpartition("/")[2],
        folder=folder,
        driver=driver,
        node=node,
        render_minor=_render_minor(folder),
        vendor=_hex(f"{folder}/vendor"),
        device=_hex(f"{folder}/device"),
        revision=_hex(f"{folder}/revision"),
    )


def _bus_order(card: DrmCard) -> tuple[int, str]:
    domain, _, rest = card.bus_id.partition(":")
    return int(domain, 16), rest


def _render_minor(folder: str) -> int | None:
    try:
        names = os.listdir(f"{folder}/drm")  # noqa: PTH208 - as above
    except OSError:
        return None
    minors = [int(match[1]) for name in names if (match := _RENDER.fullmatch(name))]
    return min(minors, default=None)


def _hex(path: str) -> int | None:
    try:
        return int(read_word(path) or "", 16)
    except ValueError:
        return None
