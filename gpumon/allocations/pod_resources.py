"""Reads the kubelet's list of which pod has which devices.

It is the answer of ``v1.PodResourcesLister/List``, in the encoding of Protocol Buffers: Kubernetes'
``staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto``. Anybody on the cluster chooses
names in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_FIELDS = 50_000
"""Far more than the 110 pods that a machine has mostly."""
_LONGEST_NAME = 512
"""Kubernetes' own limits are 63 characters for a namespace and 253 for most other names."""

_VARINT, _EIGHT_BYTES, _TEXT, _FOUR_BYTES = 0, 1, 2, 5
"""How the value of a field is encoded, by the three lowest bits of its key."""


class PodDevice(Struct, frozen=True):
    """A device that a container has."""

    # Of a device plugin the resource, such as ``nvidia.com/gpu``; of a driver for dynamic resource
    # allocation (DRA) its name, such as ``gpu.nvidia.com``.
    source: str
    id: str  # The plugin's or the driver's own name of the device.
    is_claimed: bool = False  # Whether it is allocated by DRA.
    is_share: bool = False  # Whether DRA says that others may have it, too.


class Pod(Struct, frozen=True):
    """A pod with the devices of all its containers."""

    namespace: str
    name: str
    devices: tuple[PodDevice, ...] = ()


def pods_of(message: bytes) -> list[Pod] | None:
    """The pods in the kubelet's answer; ``None`` if it is malformed or far too large."""
    reader = _Reader()
    try:
        return [_pod(reader, data) for number, data in reader.fields(message) if number == 1]
    except ValueError:
        return None


class _Reader:
    """Takes messages apart, up to so many fields of all of them together."""

    def __init__(self) -> None:
        self._left = _MOST_FIELDS

    def fields(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The number and the value of each field that is a text, bytes or a message.

        Raises:
            ValueError: The message is malformed, or there are too many fields.
        """
        place = 0
        while place < len(data):
            self._left -= 1
            if self._left < 0:
                raise ValueError
            key, place = _varint(data, place)
            encoding = key & 7
            if encoding == _VARINT:
                _, place = _varint(data, place)
                continue
            length = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(encoding)
            if encoding == _TEXT:
                length, place = _varint(data, place)
            if length is None or place + length > len(data):
                raise ValueError
            if encoding == _TEXT:
                yield key >> 3, data[place : place + length]
            place += length

    def texts(self, data: bytes) -> dict[int, str]:
        """The texts of a message by the number of their field; the last of several counts."""
        return {number: _name(value) for number, value in self.fields(data)}


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of 7 bits in each byte, and the place after it.

    Raises:
        ValueError: It is cut off, or longer than 64 bits.
    """
    number = 0
    for count, byte in enumerate(data[place : place + 10]):
        number |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return number, place + count + 1
    raise ValueError


def _name(value: bytes) -> str:
    return value[:_LONGEST_NAME].decode(errors="replace")


def _pod(reader: _Reader, data: bytes) -> Pod:
    namespace = name = ""
    # Containers of a pod may share a claim.
    devices: dict[PodDevice, None] = {}
    for number, value in reader.fields(data):
        if number == 1:
            name = _name(value)
        elif number == 2:
            namespace = _name(value)
        elif number == 3:
            devices.update(dict.fromkeys(_devices(reader, value)))
    return Pod(namespace, name, tuple(devices))


def _devices(reader: _Reader, container: bytes) -> Iterator[PodDevice]:
    for number, value in reader.fields(container):
        if number == 2:
            fields = list(reader.fields(value))
            source = next((_name(text) for key, text in fields if key == 1), "")
            yield from (PodDevice(source, _name(text)) for key, text in fields if key == 2)
        elif number == 5:
            for key, resource in reader.fields(value):
                if key == 4:
                    texts = reader.texts(resource)
                    source, device = texts.get(2, ""), texts.get(4, "")
                    yield PodDevice(source, device, is_claimed=True, is_share=5 in texts)
