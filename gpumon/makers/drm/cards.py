"""Finds the GPUs that a DRM driver runs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.host.pci import read_word
from gpumon.model.makers import makers

if TYPE_CHECKING:
    from gpumon.system.system import System

_CARD = re.compile(r"card[0-9]{1,4}")
"""A card, and not one of its connectors (``card0-DP-1``)."""

_RENDER = re.compile(r"renderD([0-9]{1,4})")

_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


class DrmCard(Struct, frozen=True):
    """A PCI device with a DRM driver."""

    bus_id: str  # Its PCI bus ID as the kernel writes it: ``0000:03:00.0``.
    folder: str  # Its folder below ``/sys/devices``, with all symbolic links resolved.
    driver: str  # Name of its driver: ``amdgpu``, ``i915``, ``xe``.
    node: str  # Name of its primary node: ``card0``.
    # Number in the name of its render node (``renderD128``); ``None`` without one.
    render_minor: int | None
    vendor: int | None  # PCI vendor ID.
    device: int | None  # PCI device ID.
    revision: int | None  # PCI revision.


def drm_drivers() -> tuple[str, ...]:
    """The DRM drivers whose GPUs gpumon shows."""
    return tuple([driver for maker in makers() if maker.is_drm for driver in maker.kernel_drivers])


def list_nodes(drivers: tuple[str, ...], sys: str) -> list[tuple[str, str, str]]:
    """Node, folder and driver of each GPU of these drivers, in no order, for ``card_of``.

    Reads only links, which the kernel has in memory: no GPU wakes.

    """
    parent = f"{sys}/class/drm"
    found = []
    for name in names_in(parent):
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


def partition_nodes(drivers: tuple[str, ...], sys: str) -> frozenset[str]:
    """Names of nodes that belong to a partition of a GPU (``amdgpu_xcp``), of whichever GPU."""
    parent = f"{sys}/class/drm"
    prefixes = tuple(f"{driver}_" for driver in drivers)
    found = set()
    for name in names_in(parent):
        if _CARD.fullmatch(name) or _RENDER.fullmatch(name):
            folder = os.path.realpath(f"{parent}/{name}/device")
            if "/platform/" in folder and folder.rpartition("/")[2].startswith(prefixes):
                found.add(name)
    return frozenset(found)


def driver_version(driver: str, system: System) -> str:
    """Name and version of a driver: its own if it is not part of the kernel, else the kernel's."""
    own = read_word(f"{system.sys}/module/{driver}/version")
    kernel = read_word(f"{system.proc}/sys/kernel/osrelease")
    return f"{driver} {own or kernel or os.uname().release}"


def card_of(node: str, folder: str, driver: str) -> DrmCard:
    """A GPU that ``list_nodes`` has found. Reads only IDs: it does not wake."""
    return DrmCard(
        bus_id=folder.rpartition("/")[2],
        folder=folder,
        driver=driver,
        node=node,
        render_minor=_render_minor(folder),
        vendor=read_hex(f"{folder}/vendor"),
        device=read_hex(f"{folder}/device"),
        revision=read_hex(f"{folder}/revision"),
    )


def bus_order(card: DrmCard) -> tuple[int, str]:
    """A sort key: the order of the PCI bus."""
    domain, _, rest = card.bus_id.partition(":")
    return int(domain, 16), rest


def _render_minor(folder: str) -> int | None:
    names = names_in(f"{folder}/drm")
    minors = [int(match[1]) for name in names if (match := _RENDER.fullmatch(name))]
    return min(minors, default=None)


def names_in(folder: str) -> list[str]:
    """The names in a folder of the kernel's; none if it cannot be read."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - pathlib is not imported before the first frame
    except OSError:
        return []


def read_hex(path: str) -> int | None:
    """The hexadecimal number in a file of the kernel's; ``None`` if there is none."""
    try:
        return int(read_word(path) or "", 16)
    except ValueError:
        return None
