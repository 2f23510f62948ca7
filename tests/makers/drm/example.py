"""A backend of a driver that has only a few files, for tests of what all DRM backends share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.makers.amd import MAKER
from gpumon.makers.drm.backend import DrmBackend
from gpumon.makers.drm.gpu import DrmGpu, Engines

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.makers.drm.cards import DrmCard
    from tests.makers.drm.trees import Tree

MIB = 2**20


class ExampleGpu(DrmGpu):
    fields: ClassVar[frozenset[str]] = frozenset(
        {
            *("name", "temperature_gpu", "memory_used", "memory_total", "fan_speed"),
            # Read by nobody, as a value that follows from the clients before they are read.
            "utilization_gpu",
        }
    )
    engines = Engines(("gfx", "rcs"), ("compute", "ccs"), ("enc",), ("dec",))

    def read_once(self) -> None:
        self.answers.put("memory_total", self.attributes.number("mem_total"))

    def read_fast(self) -> None:
        celsius = self.attributes.scaled("hwmon/hwmon0/temp1_input", 1000, 300)
        self.answers.put("temperature_gpu", celsius)
        self.answers.put("memory_used", self.attributes.number("mem_used"))

    def read_slow(self) -> None:
        self.answers.put("fan_speed", self.attributes.number("fan"))


class ExampleBackend(DrmBackend):
    maker = MAKER

    def new_gpu(self, card: DrmCard) -> DrmGpu:
        integrated = card.device == 0x1234
        uuid = f"GPU-{card.bus_id}"
        gpu = ExampleGpu(card, uuid, self._calls, self._clock, integrated=integrated)
        gpu.answers.put("name", f"Acme {card.device:#06x}")
        return gpu


def add_card(tree: Tree, number: int, device: str = "0x744c", **power: str) -> Path:
    """Add the GPU ``0000:0N:00.0`` with the nodes ``cardN`` and ``renderD12(8+N)``."""
    files = {
        "vendor": "0x1002\n",
        "device": f"{device}\n",
        "mem_total": f"{1024 * MIB}\n",
        "mem_used": f"{100 * MIB}\n",
        "hwmon/hwmon0/temp1_input": "45400\n",
        **{f"power/{name}": f"{value}\n" for name, value in power.items()},
    }
    return tree.card(f"0000:0{number}:00.0", "amdgpu", files, number=number, render=128 + number)


def client(
    number: int,
    client_id: int | None = 1,
    *,
    vram: int = 10,
    driver: str = "amdgpu",
    **engines: int,
) -> str:
    """What ``fdinfo`` tells of a client of the GPU ``number``; memory in MiB, engines in ns."""
    lines = [f"drm-driver:\t{driver}", f"drm-pdev:\t0000:0{number}:00.0"]
    if client_id is not None:
        lines.append(f"drm-client-id:\t{client_id}")
    lines.append(f"drm-memory-vram:\t{vram} MiB")
    lines += [f"drm-engine-{name}:\t{value} ns" for name, value in engines.items()]
    return "\n".join(lines) + "\n"


def node(number: int) -> str:
    """Path of the render node of the GPU ``number``."""
    return f"/dev/dri/renderD{128 + number}"
