"""The structures of nvml.h that gpumon fills in, under NVIDIA's own names.

NVIDIA's Python binding has them all, hundreds of them: to import it takes longer than the first
picture may, and 3 MiB for as long as gpumon runs. ``tests/sources/test_nvml_structures.py`` holds
that these are the binding's, byte by byte.
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_int, c_uint, c_ulonglong, c_void_p


class Memory(Structure):
    """``nvmlMemory_t``, in bytes: what the driver reserves counts as used."""

    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class MemoryV2(Structure):
    """``nvmlMemory_v2_t``, in bytes."""

    VERSION = 0x02000028
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class Bar1Memory(Structure):
    """``nvmlBAR1Memory_t``, in bytes."""

    _fields_ = (("bar1Total", c_ulonglong), ("bar1Free", c_ulonglong), ("bar1Used", c_ulonglong))


class Utilization(Structure):
    """``nvmlUtilization_t``, in percent of the time."""

    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class Temperature(Structure):
    """``nvmlTemperature_v1_t``, in °C."""

    VERSION = 0x0100000C
    _fields_ = (("version", c_uint), ("sensorType", c_uint), ("temperature", c_int))


TEMPERATURE_GPU = 0
"""``NVML_TEMPERATURE_GPU``: the sensor on the die."""


class MarginTemperature(Structure):
    """``nvmlMarginTemperature_v1_t``, in °C."""

    VERSION = 0x01000008
    _fields_ = (("version", c_uint), ("marginTemperature", c_int))


class PciInfo(Structure):
    """``nvmlPciInfo_t``; the first 16 bytes were all of the bus id once."""

    _fields_ = (
        ("busIdLegacy", c_char * 16),
        ("domain", c_uint),
        ("bus", c_uint),
        ("device", c_uint),
        ("pciDeviceId", c_uint),
        ("pciSubSystemId", c_uint),
        ("busId", c_char * 32),
    )


class EventData(Structure):
    """``nvmlEventData_t``: for an XID, its number is the data."""

    _fields_ = (
        ("device", c_void_p),
        ("eventType", c_ulonglong),
        ("eventData", c_ulonglong),
        ("gpuInstanceId", c_uint),
        ("computeInstanceId", c_uint),
    )


class DeviceAttributes(Structure):
    """``nvmlDeviceAttributes_t`` of a MIG device."""

    _fields_ = (
        ("multiprocessorCount", c_uint),
        ("sharedCopyEngineCount", c_uint),
        ("sharedDecoderCount", c_uint),
        ("sharedEncoderCount", c_uint),
        ("sharedJpegCount", c_uint),
        ("sharedOfaCount", c_uint),
        ("gpuInstanceSliceCount", c_uint),
        ("computeInstanceSliceCount", c_uint),
        ("memorySizeMB", c_ulonglong),
    )
