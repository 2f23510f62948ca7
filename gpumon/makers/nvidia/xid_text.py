"""What the text of an XID's line in the kernel log says beyond its number, where it is documented.

Sources:

- XIDs 144 to 150: NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors,
  ``analyzing-xid-catalog``). Its mnemonics ``NVLINK_SAW_ERROR`` and so on name the unit of an
  NVLink 5, ``WORKFLOW_NVLINK5_ERR`` the parts of a line: sub component, fatal or not, cross
  containment, injected, link, registers. Lines of users have up to three spaces between them, and
  link -1 for an error of no single link (leptonai/gpud, ``nvlink_logs_test.go``).
- XID 74: lines of users; the catalogue describes their registers only (``WORKFLOW_NVLINK_ERR``).
- XID 154: ``gpu.c`` and ``ctrl2080gpu.h`` of NVIDIA/open-gpu-kernel-modules 595, whose numbers are
  those of ``nvmlDeviceGpuRecoveryAction_t``; what they ask for is in NVIDIA's guide to memory
  errors (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, ``error-recovery-and-response-flags``).
  The names are not read, as newer drivers have others (``PF FLR`` for 1, ``OS Reboot`` for 2).
"""

from __future__ import annotations

import re

_NVLINK_UNITS = {
    144: "SAW",
    145: "RLW",
    146: "TLW",
    147: "TREX",
    148: "NVLPW_CTRL",
    149: "NETIR",
    150: "MSE",
}
# ``NETIR_LINK_EVT  Fatal   XC0 i0 Link 08 (0x004505c6 …)``
_NVLINK = re.compile(
    r"[A-Z][A-Z0-9_]{1,40} {1,8}(Fatal|Nonfatal) {1,8}XC\d {1,8}i\d {1,8}Link {1,8}(-1|\d{1,3})\b"
)
# ``NVLink: fatal error detected on link 6(0x10000, …)``
_OLDER_NVLINK = re.compile(r"NVLink: (fatal) error detected on link (\d{1,3})\b")

_RECOVERY = re.compile(
    r"GPU recovery action changed from 0x[0-9a-f]+ \([^()]*\) to 0x([0-9a-f]{1,2}) \([^()]*\)"
)
_ACTIONS = {
    0: "no recovery is needed any more",
    1: "the GPU needs a reset",
    2: "the machine needs a reboot",
    3: "the traffic between GPUs must end first",
    4: "the work on the GPU must end, then the GPU needs a reset",
    5: "the IMEX domain must be recovered",
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
    link = "" if match[2] == "-1" else f", link {int(match[2])}"
    return f"{fatal}{link}{unit}"
