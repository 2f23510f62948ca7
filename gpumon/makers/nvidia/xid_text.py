"""What the text of an XID's line in the kernel log says beyond its number, where it is documented.

Sources: the mnemonics of XIDs 144 to 150 in NVIDIA's XID catalogue, which name the unit of an
NVLink 5; the forms of the lines in ``open-gpu-kernel-modules``; the numbers of recovery actions in
``nvml.h`` (``nvmlDeviceGpuRecoveryAction_t``), because drivers name them differently.
"""

from __future__ import annotations

import re

_NVLINK_UNITS = {
    144: "SAW",
    145: "RLW",
    146: "TLW",
    147: "TREX",
    148: "NVLPW control",
    149: "NETIR",
    150: "MSE",
}
# ``NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x00086226 …)``
_NVLINK = re.compile(r"[A-Z][A-Z0-9_]{1,40} (Fatal|Nonfatal) XC\d+ i\d+ Link (\d{1,3})\b")
# ``NVLink: fatal error detected on link 6(0x10000, …)``
_OLDER_NVLINK = re.compile(r"NVLink: (fatal|non-?fatal) error detected on link (\d{1,3})\b")

_RECOVERY = re.compile(
    r"GPU recovery action changed from 0x[0-9a-f]+ \([^()]*\) to 0x([0-9a-f]{1,2}) \([^()]*\)"
)
_ACTIONS = {
    0: "no recovery is needed any more",
    1: "the GPU needs a reset",
    2: "the machine needs a reboot",
    3: "the traffic between GPUs must end first",
    4: "the work on the GPU must end, then the GPU needs a reset",
}


def xid_details(number: int, text: str) -> str | None:
    """What the text of an XID says, in words that follow a comma; ``None`` if that is not known."""
    if number in _NVLINK_UNITS:
        match = _NVLINK.match(text)
        unit = f", unit {_NVLINK_UNITS[number]}"
    elif number == 74:
        match, unit = _OLDER_NVLINK.match(text), ""
    elif number == 154 and (action := _RECOVERY.match(text)):
        return _ACTIONS.get(int(action[1], 16))
    else:
        return None
    if match is None:
        return None
    fatal = "fatal" if match[1].lower() == "fatal" else "not fatal"
    return f"{fatal}, link {int(match[2])}{unit}"
