"""That the structures are those of NVIDIA's own binding."""

from __future__ import annotations

import ctypes

import pynvml
import pytest

from gpumon.sources.nvml import events, structures
from gpumon.sources.nvml.structures import (
    Bar1Memory,
    DeviceAttributes,
    EventData,
    MarginTemperature,
    Memory,
    MemoryV2,
    PciInfo,
    Temperature,
    Utilization,
)

BINDING = {
    Memory: pynvml.c_nvmlMemory_t,
    MemoryV2: pynvml.c_nvmlMemory_v2_t,
    Bar1Memory: pynvml.c_nvmlBAR1Memory_t,
    Utilization: pynvml.c_nvmlUtilization_t,
    Temperature: pynvml.c_nvmlTemperature_v1_t,
    MarginTemperature: pynvml.c_nvmlMarginTemperature_v1_t,
    PciInfo: pynvml.nvmlPciInfo_t,
    EventData: pynvml.c_nvmlEventData_t,
    DeviceAttributes: pynvml.c_nvmlDeviceAttributes,
}


def layout(structure: type[ctypes.Structure]) -> list[tuple[str, int, int]]:
    """Where its fields are and how long."""
    fields = [(field[0], getattr(structure, field[0])) for field in structure._fields_]
    return [(name, field.offset, field.size) for name, field in fields]


def test_every_structure_is_compared() -> None:
    ours = [one for one in vars(structures).values() if isinstance(one, type(ctypes.Structure))]
    assert {one for one in ours if one.__module__ == structures.__name__} == BINDING.keys()


@pytest.mark.parametrize("ours", BINDING, ids=lambda one: str(one.__name__))
def test_a_structure_is_laid_out_as_the_bindings(ours: type[ctypes.Structure]) -> None:
    theirs = BINDING[ours]
    assert layout(ours) == layout(theirs)
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)


def test_the_numbers_are_the_bindings() -> None:
    assert pynvml.nvmlMemory_v2 == MemoryV2.VERSION
    assert pynvml.nvmlTemperature_v1 == Temperature.VERSION
    assert pynvml.nvmlMarginTemperature_v1 == MarginTemperature.VERSION
    assert pynvml.NVML_TEMPERATURE_GPU == structures.TEMPERATURE_GPU
    assert pynvml.nvmlEventTypeXidCriticalError == events.XID_CRITICAL_ERROR
