"""Names of Intel's GPUs by their PCI device ID.

The source of IDs and names is ``shared/source/dll/devices/devices_base.inl`` of Intel's
compute-runtime; for processors before the eleventh generation ``include/pci_ids/iris_pci_ids.h``
of Mesa. The kernel has no names.
"""

from __future__ import annotations

from typing import NamedTuple

_XE_LP, _XE_HPG, _XE_HPC, _XE2 = "Xe-LP", "Xe-HPG", "Xe-HPC", "Xe2"


class Model(NamedTuple):
    """A model."""

    name: str  # Its name, which begins with the maker.
    architecture: str | None  # Its generation; ``None`` where the source does not say.
    discrete: bool | None  # Whether it is a card; ``None`` for an unknown model.


_CARDS: dict[str, dict[int, str]] = {
    _XE_LP: {
        0x4905: "Iris Xe MAX",
        0x4906: "DG1",
        0x4907: "Server GPU SG-18M",
        0x4908: "Iris Xe",
        0x4909: "Iris Xe MAX 100",
    },
    _XE_HPG: {
        0x5690: "Arc A770M",
        0x5691: "Arc A730M",
        0x5692: "Arc A550M",
        0x5693: "Arc A370M",
        0x5694: "Arc A350M",
        0x5696: "Arc A570M",
        0x5697: "Arc A530M",
        0x56A0: "Arc A770",
        0x56A1: "Arc A750",
        0x56A2: "Arc A580",
        0x56A5: "Arc A380",
        0x56A6: "Arc A310",
        0x56AF: "Arc A760A",
        0x56B0: "Arc Pro A30M",
        0x56B1: "Arc Pro A40/A50",
        0x56B2: "Arc Pro A60M",
        0x56B3: "Arc Pro A60",
        0x56BA: "Arc A380E",
        0x56BB: "Arc A310E",
        0x56BC: "Arc A370E",
        0x56BD: "Arc A350E",
        0x56BE: "Arc A750E",
        0x56BF: "Arc A580E",
        0x56C0: "Data Center GPU Flex 170",
        0x56C1: "Data Center GPU Flex 140",
        0x56C2: "Data Center GPU Flex 170V",
    },
    _XE_HPC: {
        0x0B69: "Data Center GPU Max 1450",
        0x0B6E: "Data Center GPU Max 1100C",
        0x0BD4: "Data Center GPU Max 1550VG",
        0x0BD5: "Data Center GPU Max 1550",
        0x0BD6: "Data Center GPU Max 1550",
        0x0BD7: "Data Center GPU Max 1350",
        0x0BD8: "Data Center GPU Max 1350",
        0x0BD9: "Data Center GPU Max 1100",
        0x0BDA: "Data Center GPU Max 1100",
        0x0BDB: "Data Center GPU Max 1100",
    },
    _XE2: {
        0xE209: "Arc B580",
        0xE20B: "Arc B580",
        0xE20C: "Arc B570",
        0xE211: "Arc Pro B60",
        0xE212: "Arc Pro B50",
    },
}

_IRIS_XE, _UHD, _ARC = "Iris Xe Graphics", "UHD Graphics", "Arc Graphics"

_PROCESSOR_GRAPHICS: dict[str, tuple[int, ...]] = {
    "Arc B390": (0xB080, 0xB082),
    "Arc B370": (0xB081, 0xB083),
    _ARC: (0x64A0, 0x7D55, 0x7D51),
    _IRIS_XE: (0x9A49, 0x9A40, 0x46A6, 0x46A8, 0x46AA, 0xA7A0, 0xA7A1),
    "UHD Graphics 770": (0x4680, 0x4690, 0xA780),
    "UHD Graphics 750": (0x4C8A,),
    "UHD Graphics P750": (0x4C90,),
    "UHD Graphics 730": (0x4C8B, 0x4682, 0x4692, 0xA782),
    "UHD Graphics 710": (0x4693,),
    _UHD: (
        *(0x9A60, 0x9A68, 0x9A70, 0x9A78),
        *(0x4688, 0x468A, 0x468B, 0xA788, 0xA78A, 0xA78B),
        *(0x46D0, 0x46D1, 0x46D2, 0x46A3, 0x462A, 0x4626, 0x4628, 0x46B3, 0x46C3),
        *(0xA720, 0xA721, 0xA7A8, 0xA7A9),
        *(0x9B41, 0x9BC0, 0x9BC2, 0x9BC4, 0x9BCA, 0x9BCC),
    ),
    "UHD Graphics 630": (0x3E91, 0x3E92, 0x3E98, 0x3E9B, 0x9BC5, 0x9BC8),
    "UHD Graphics P630": (0x3E94, 0x3E96, 0x3E9A, 0x9BC6, 0x9BE6, 0x9BF6),
    "UHD Graphics 620": (0x3EA0, 0x3EA9, 0x5917),
    "UHD Graphics 610": (0x3E90, 0x3E93, 0x9BA5, 0x9BA8),
    "Iris Plus Graphics": (0x8A51, 0x8A52, 0x8A53, 0x8A5A, 0x8A5C),
    "Iris Plus Graphics 655": (0x3EA5, 0x3EA8),
    "HD Graphics 630": (0x5912, 0x591B),
    "HD Graphics 620": (0x5916, 0x5921),
    "HD Graphics 530": (0x1912, 0x191B),
    "HD Graphics 520": (0x1916, 0x1921),
    "HD Graphics 5500": (0x1616,),
    "Graphics": (
        *(0xB08F, 0xB090, 0xB0A0, 0x6420, 0x64B0),
        *(0x7D40, 0x7DD5, 0x7D45, 0x7D67, 0x7DD1, 0x7D41),
        *(0x46D3, 0x46D4, 0xA7AA, 0xA7AB, 0xA7AC, 0xA7AD),
    ),
}


_PROCESSOR_BUS_ID = "0000:00:02.0"
"""Processor graphics are always at this place."""


def is_integrated(folder: str, device: int | None) -> bool:
    """Whether a GPU is part of a processor."""
    discrete = model_of(device).discrete
    if discrete is None:
        return folder.rpartition("/")[2] == _PROCESSOR_BUS_ID
    return not discrete


def model_of(device: int | None) -> Model:
    """The model with a PCI device ID."""
    if device is None:
        return Model("Intel GPU", None, None)
    for architecture, names in _CARDS.items():
        if device in names:
            return Model(f"Intel {names[device]}", architecture, discrete=True)
    for name, devices in _PROCESSOR_GRAPHICS.items():
        if device in devices:
            return Model(f"Intel {name}", None, discrete=False)
    return Model(f"Intel GPU {device:#06x}", None, None)
