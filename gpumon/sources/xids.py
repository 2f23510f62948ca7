"""XIDs of NVIDIA's driver: what each number means, how severe it is, and what to do about it.

Sources: NVIDIA's XID catalogue for Ampere and later, with its columns "immediate action" and
"investigatory action" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), and the table
for older GPUs beside it. Numbers that both call unused are absent. Which are ``CRITICAL`` is the
common choice of those who send alerts on XIDs; ``docs/fleet/alerts.yml`` has the same.
"""

from __future__ import annotations

from gpumon.sources.maker_words import ErrorSeverity

_PROGRAM, _NOTE = ErrorSeverity.BY_PROGRAM, ErrorSeverity.NOTE
_WARNING, _CRITICAL = ErrorSeverity.WARNING, ErrorSeverity.CRITICAL


class _Do:
    """What to do, from the two columns of the catalogue; each a sentence without a full stop."""

    CHECK_PROGRAM = (
        "look for the fault in the program (`compute-sanitizer` finds it); if different programs "
        "fail on this GPU only, test the GPU with `dcgmi diag -r 3`"
    )
    RESTART = "restart the program; if it comes back, report it with `nvidia-bug-report.sh`"
    FOLLOW = "look at the error before it, which caused this one; alone it means a killed program"
    NOTHING = "nothing; if it comes often, report it with `nvidia-bug-report.sh`"
    REPAIRED = "nothing now: the next reset of the GPU completes the repair"
    RESET = (
        "end what uses the GPU and reset it (`nvidia-smi --gpu-reset` as root, or a reboot); if it "
        "comes back, contact the vendor"
    )
    REPLACE = (
        "move jobs away and reset the GPU; if it comes back, or no spare memory is left, have the "
        "GPU replaced"
    )
    CONTAINED = "restart the program that was ended, and reset the GPU when it is free"
    REBOOT = (
        "reboot the machine, with the power off in between; if it comes back, check seating, power "
        "cables and cooling, then contact the vendor"
    )
    NVLINK = (
        "end the jobs on the linked GPUs and reset these GPUs, or reboot; `nvidia-smi nvlink -e` "
        "shows which link; if it comes back, have its connection checked"
    )
    POWER = "switch off and connect the power cables of the GPU"
    UPDATE = "use a host driver and a guest driver that belong together"
    RECOVERY = "do what the driver recommends: the recovery action in `nvidia-smi -q`"
    RESTART_GUEST = "restart the virtual machine"
    MEMORY_OF_HOST = (
        "if a program uses unified memory (UVM), reset the GPU; otherwise restart the program"
    )
    REPORT = "if it comes back, contact the vendor with the output of `nvidia-bug-report.sh`"


_COPY = "a copy engine stopped at an error of a program"
_DECODE, _JPEG = "a video decoder failed for a program", "a JPEG decoder failed for a program"
_ENCODE, _VIDEO = "a video encoder failed for a program", "the video processor failed for a program"
_COMMANDS = "a program's commands arrived corrupted"
_FIRMWARE = "the firmware reported an error"
_DISPLAY = "the display engine failed"
_NVLINK5 = "error on an NVLink"

XIDS: dict[int, tuple[str, ErrorSeverity, str]] = {
    6: (_COMMANDS, _PROGRAM, _Do.RESTART),
    7: ("a program's commands had a wrong address", _PROGRAM, _Do.RESTART),
    8: ("the GPU stopped working on a program", _PROGRAM, _Do.RESTART),
    9: ("the driver programmed the GPU wrongly", _WARNING, _Do.REPORT),
    11: (_COMMANDS, _PROGRAM, _Do.CHECK_PROGRAM),
    12: ("the driver could not handle an error of the GPU", _WARNING, _Do.REPORT),
    13: ("a program crashed on the graphics engine", _PROGRAM, _Do.CHECK_PROGRAM),
    16: ("the display engine hangs", _WARNING, _Do.REPORT),
    18: ("the GPU was denied access to the PCIe bus", _WARNING, _Do.REPORT),
    19: (_DISPLAY, _WARNING, _Do.REPORT),
    24: ("the GPU waited too long for a signal", _WARNING, _Do.REPORT),
    25: ("a program's commands were not valid", _PROGRAM, _Do.CHECK_PROGRAM),
    26: ("the GPU's memory did not answer in time", _WARNING, _Do.REPORT),
    27: (_VIDEO, _PROGRAM, _Do.RESTART),
    28: (_VIDEO, _PROGRAM, _Do.RESTART),
    29: (_VIDEO, _PROGRAM, _Do.RESTART),
    30: ("the driver used a signal wrongly", _WARNING, _Do.REPORT),
    31: ("a program touched memory that it does not own", _PROGRAM, _Do.CHECK_PROGRAM),
    32: (_COMMANDS, _PROGRAM, _Do.CHECK_PROGRAM),
    33: ("a micro-controller of the GPU failed", _WARNING, _Do.REPORT),
    34: (_VIDEO, _PROGRAM, _Do.RESTART),
    35: (_VIDEO, _PROGRAM, _Do.RESTART),
    36: (_VIDEO, _PROGRAM, _Do.RESTART),
    37: (_FIRMWARE, _NOTE, _Do.NOTHING),
    38: (_FIRMWARE, _NOTE, _Do.NOTHING),
    39: (_COPY, _PROGRAM, _Do.RESTART),
    40: (_COPY, _PROGRAM, _Do.RESTART),
    41: (_COPY, _PROGRAM, _Do.RESTART),
    42: (_VIDEO, _PROGRAM, _Do.RESTART),
    43: ("a program was stopped after an error of its own", _PROGRAM, _Do.CHECK_PROGRAM),
    44: ("a fault while programs took turns", _NOTE, _Do.NOTHING),
    45: ("a program was ended after an earlier error, or killed", _PROGRAM, _Do.FOLLOW),
    46: ("the GPU stopped processing", _WARNING, _Do.RESET),
    47: (_ENCODE, _PROGRAM, _Do.RESTART),
    48: ("memory error that could not be corrected", _CRITICAL, _Do.REPLACE),
    54: ("the GPU lacks auxiliary power", _WARNING, _Do.POWER),
    56: (_DISPLAY, _WARNING, _Do.REPORT),
    57: ("the link to the GPU's memory could not be set up", _WARNING, _Do.REPORT),
    58: ("the link to the GPU's memory is unstable", _WARNING, _Do.REPORT),
    59: ("a micro-controller of the GPU failed", _WARNING, _Do.REPORT),
    60: (_VIDEO, _PROGRAM, _Do.RESTART),
    61: ("the GPU's micro-controller warned", _WARNING, _Do.REPORT),
    62: ("the GPU's micro-controller halted", _CRITICAL, _Do.RESET),
    63: ("a bad piece of memory was marked for replacement", _NOTE, _Do.REPAIRED),
    64: ("a bad piece of memory could not be replaced", _CRITICAL, _Do.REPLACE),
    65: (_ENCODE, _PROGRAM, _Do.RESTART),
    66: ("the driver made a forbidden access", _NOTE, _Do.NOTHING),
    67: ("the driver made a forbidden access", _NOTE, _Do.NOTHING),
    68: (_DECODE, _PROGRAM, _Do.RESTART),
    69: ("a program used the graphics engine wrongly", _PROGRAM, _Do.CHECK_PROGRAM),
    70: (_COPY, _PROGRAM, _Do.RESTART),
    71: (_COPY, _PROGRAM, _Do.RESTART),
    72: (_COPY, _PROGRAM, _Do.RESTART),
    73: (_ENCODE, _PROGRAM, _Do.RESTART),
    74: ("error on an NVLink", _CRITICAL, _Do.NVLINK),
    75: (_COPY, _PROGRAM, _Do.RESTART),
    76: (_COPY, _PROGRAM, _Do.RESTART),
    77: (_COPY, _PROGRAM, _Do.RESTART),
    78: ("a virtual GPU could not start", _WARNING, _Do.UPDATE),
    79: ("the GPU fell off the bus", _CRITICAL, _Do.REBOOT),
    80: ("data reached the GPU corrupted", _PROGRAM, _Do.CHECK_PROGRAM),
    81: ("the VGA part of the GPU failed", _WARNING, _Do.REPORT),
    82: (_JPEG, _PROGRAM, _Do.RESTART),
    83: (_DECODE, _PROGRAM, _Do.RESTART),
    84: (_DECODE, _PROGRAM, _Do.RESTART),
    85: (_COPY, _PROGRAM, _Do.RESTART),
    86: ("the optical flow engine failed for a program", _PROGRAM, _Do.RESTART),
    88: (_DECODE, _PROGRAM, _Do.RESTART),
    89: (_DECODE, _PROGRAM, _Do.RESTART),
    92: ("corrected memory errors are frequent", _NOTE, _Do.NOTHING),
    93: ("the GPU's settings memory was written too often", _NOTE, _Do.NOTHING),
    94: ("memory error, kept within one program", _WARNING, _Do.CONTAINED),
    95: ("memory error that may have touched every program", _CRITICAL, _Do.REPLACE),
    96: (_DECODE, _PROGRAM, _Do.RESTART),
    97: (_DECODE, _PROGRAM, _Do.RESTART),
    98: (_DECODE, _PROGRAM, _Do.RESTART),
    99: (_JPEG, _PROGRAM, _Do.RESTART),
    100: (_JPEG, _PROGRAM, _Do.RESTART),
    101: (_JPEG, _PROGRAM, _Do.RESTART),
    102: (_JPEG, _PROGRAM, _Do.RESTART),
    103: (_JPEG, _PROGRAM, _Do.RESTART),
    104: (_JPEG, _PROGRAM, _Do.RESTART),
    105: (_JPEG, _PROGRAM, _Do.RESTART),
    106: ("a test message of the management bus", _NOTE, _Do.NOTHING),
    107: ("a test message of the management bus", _NOTE, _Do.NOTHING),
    108: ("an address could not be translated at the other end of an NVLink", _NOTE, _Do.NOTHING),
    109: ("a program did not make way for another in time", _WARNING, _Do.RESET),
    110: ("the GPU found its security violated", _WARNING, _Do.RESET),
    111: (_DISPLAY, _WARNING, _Do.REPORT),
    112: (_DISPLAY, _WARNING, _Do.REPORT),
    113: ("the link to a display could not be set up", _WARNING, _Do.REPORT),
    114: ("a display ran out of picture data", _WARNING, _Do.REPORT),
    115: (_DISPLAY, _WARNING, _Do.REPORT),
    116: (_DISPLAY, _WARNING, _Do.REPORT),
    117: (_DISPLAY, _WARNING, _Do.REPORT),
    118: (_DISPLAY, _WARNING, _Do.REPORT),
    119: ("the GPU's system processor (GSP) did not answer", _CRITICAL, _Do.RESET),
    120: ("the GPU's system processor (GSP) failed", _CRITICAL, _Do.RESET),
    121: ("error on the link between chips (C2C)", _WARNING, _Do.REPORT),
    122: ("the GPU's flash memory could not be read", _WARNING, _Do.REPORT),
    123: ("the GPU's flash memory could not be written", _WARNING, _Do.REPORT),
    124: ("the GPU's flash memory could not be erased", _WARNING, _Do.REPORT),
    125: ("the GPU's settings memory is damaged", _WARNING, _Do.REPORT),
    126: (_COPY, _PROGRAM, _Do.RESTART),
    127: (_COPY, _PROGRAM, _Do.RESTART),
    128: (_COPY, _PROGRAM, _Do.RESTART),
    129: (_COPY, _PROGRAM, _Do.RESTART),
    130: (_COPY, _PROGRAM, _Do.RESTART),
    131: (_COPY, _PROGRAM, _Do.RESTART),
    132: (_COPY, _PROGRAM, _Do.RESTART),
    133: (_COPY, _PROGRAM, _Do.RESTART),
    134: (_COPY, _PROGRAM, _Do.RESTART),
    135: (_COPY, _PROGRAM, _Do.RESTART),
    136: ("an NVLink could not be set up", _WARNING, _Do.NVLINK),
    137: ("an access over an NVLink was refused", _NOTE, _Do.FOLLOW),
    139: ("the optical flow engine failed for a program", _PROGRAM, _Do.RESTART),
    140: ("memory error that was not recovered from", _WARNING, _Do.RESET),
    141: ("an error in CUDA's fast path", _NOTE, _Do.NOTHING),
    142: (_ENCODE, _PROGRAM, _Do.RESTART),
    143: ("the GPU could not be initialised", _WARNING, _Do.RESET),
    144: (_NVLINK5, _WARNING, _Do.NVLINK),
    145: (_NVLINK5, _WARNING, _Do.NVLINK),
    146: (_NVLINK5, _WARNING, _Do.NVLINK),
    147: (_NVLINK5, _WARNING, _Do.NVLINK),
    148: (_NVLINK5, _WARNING, _Do.NVLINK),
    149: (_NVLINK5, _WARNING, _Do.NVLINK),
    150: (_NVLINK5, _WARNING, _Do.NVLINK),
    151: ("keys of confidential computing could not be changed", _WARNING, _Do.RESTART_GUEST),
    152: ("a deep learning accelerator touched memory wrongly", _NOTE, _Do.NOTHING),
    153: ("a deep learning accelerator did not answer in time", _NOTE, _Do.NOTHING),
    154: ("the driver changed its advice on how to recover the GPU", _WARNING, _Do.RECOVERY),
    155: ("error on an NVLink, found by software", _WARNING, _Do.NVLINK),
    156: ("a bad part of the GPU was marked to be left out", _WARNING, _Do.RESET),
    157: ("a bad part of the GPU could not be left out", _WARNING, _Do.REPORT),
    158: ("the GPU did not answer in time", _WARNING, _Do.RESET),
    159: ("error on the link to the processor's memory", _WARNING, _Do.MEMORY_OF_HOST),
    160: ("a channel of the GPU was taken out of use", _NOTE, _Do.NOTHING),
    161: ("a channel of the GPU could not be taken out of use", _NOTE, _Do.NOTHING),
    162: ("power smoothing works again", _NOTE, _Do.NOTHING),
    163: ("power smoothing was switched off", _NOTE, _Do.NOTHING),
    164: ("the circuits for power smoothing are nearly worn out", _NOTE, _Do.NOTHING),
    165: ("the circuits for power smoothing are worn out", _WARNING, _Do.REPORT),
    166: ("data on an NVLink before its encryption was set up", _WARNING, _Do.REPORT),
    167: ("the PCIe bus did not answer in time", _WARNING, _Do.REPORT),
    168: ("errors in the protected part of the memory", _WARNING, _Do.REPORT),
    169: ("the GPU's security processor halted", _WARNING, _Do.REPORT),
    170: ("error on an encrypted NVLink", _WARNING, _Do.REPORT),
    171: ("memory error (DRAM) that could not be corrected", _WARNING, _Do.REPLACE),
    172: ("memory error inside the chip (SRAM), not corrected", _WARNING, _Do.REPLACE),
}
"""Meaning in plain words, severity, and what to do."""
