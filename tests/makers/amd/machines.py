"""Machines with real AMD GPUs.

``models/NAME.json`` has the files of one card as they were captured, with the source: text in
``files``, binary in ``hex``. Files that no capture has are missing. KFD's files are made here in
the form of ``kfd_topology.c`` and ``kfd_process.c`` of the kernel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from tests.makers.drm.trees import Tree, write

if TYPE_CHECKING:
    from collections.abc import Mapping

_MODELS = Path(__file__).parent / "models"

NAMES = sorted(path.stem for path in _MODELS.glob("*.json"))


def capture(model: str) -> tuple[str, dict[str, str | bytes]]:
    """The PCI bus ID of a captured card, and its files."""
    read = json.loads((_MODELS / f"{model}.json").read_text())
    files: dict[str, str | bytes] = dict(read["files"])
    for path, digits in read.get("hex", {}).items():
        files[path] = bytes.fromhex(digits)
    files.setdefault("power/control", "on\n")
    return read["bus_id"], files


def add(
    tree: Tree,
    model: str,
    changes: Mapping[str, str | bytes | None] | None = None,
    *,
    bus_id: str | None = None,
    number: int = 0,
    parents: tuple[str, ...] = ("0000:00:01.0",),
) -> Path:
    """Add a card to a machine, and return its folder.

    ``changes`` are files that differ from the capture's; ``None`` removes one. Without a bus ID it
    has that of the capture.
    """
    captured, files = capture(model)
    for path, content in (changes or {}).items():
        if content is None:
            files.pop(path, None)
        else:
            files[path] = content
    return tree.card(
        bus_id or captured, "amdgpu", files, number=number, render=128 + number, parents=parents
    )


def machine(
    root: Path, model: str, changes: Mapping[str, str | bytes | None] | None = None
) -> Tree:
    """A machine with one card."""
    tree = Tree(root)
    add(tree, model, changes)
    return tree


def add_kfd_node(
    tree: Tree, node: int, gpu_id: int, bus_id: str, version: int, *, partition: int = 0
) -> None:
    """Add a GPU, or a partition of one, to KFD's topology; node 0 is the processor.

    ``gpu_id`` is KFD's number of the GPU, and ``version`` its ``gfx_target_version``.
    """
    folder = tree.sys / "class/kfd/kfd/topology/nodes"
    if not folder.exists():
        write(folder / "0/gpu_id", "0\n")
        write(folder / "0/properties", "cpu_cores_count 16\nsimd_count 0\nlocation_id 0\n")
    domain, bus, rest = bus_id.split(":")
    device, function = rest.split(".")
    location = partition << 28 | int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
    write(folder / f"{node}/gpu_id", f"{gpu_id}\n")
    write(
        folder / f"{node}/properties",
        f"cpu_cores_count 0\nsimd_count 192\ngfx_target_version {version}\n"
        f"location_id {location}\ndomain {int(domain, 16)}\ndrm_render_minor {128 + node}\n",
    )


def add_kfd_process(tree: Tree, pid: int, memory: Mapping[int, int]) -> None:
    """Add a process of ROCm, or change its memory: bytes by KFD's number of the GPU."""
    folder = tree.sys / f"class/kfd/kfd/proc/{pid}"
    write(folder / "pasid", "32770\n")
    for gpu_id, size in memory.items():
        write(folder / f"vram_{gpu_id}", f"{size}\n")
        write(folder / f"sdma_{gpu_id}", "0\n")
