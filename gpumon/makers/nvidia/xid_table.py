"""XIDs of NVIDIA's driver: what each number means, how severe it is, and what to do about it.

Sources: NVIDIA's XID catalogue for Ampere and later, with its columns "immediate action" and
"investigatory action" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), and the table
for older GPUs beside it. Numbers that both call unused are absent. Which are ``CRITICAL`` is the
common choice of those who send alerts on XIDs; ``docs/fleet/alerts.yml`` has the same.
"""

from __future__ import annotations

from gpumon.model.error_codes import ErrorSeverity

_PROGRAM, _NOTE = ErrorSeverity.BY_PROGRAM, ErrorSeverity.NOTE
_WARNING, _CRITICAL = ErrorSeverity.WARNING, ErrorSeverity.CRITICAL


class _Do:
    """What to do, from the two columns of the catalogue; each a sentence without a full stop."""

    CHECK_PROGRAM = (
        "look for the fault in the program (`compute-sanitizer` finds it); if different programs "
        "fail on this GPU only, test the GPU with `dcgmi diag -r 3`"
    )
    RESTART = "restart the program; if it comes back, report it with `nvidia-bug-report.sh`"
    FOLLOW = (
        "look at the error before it, which caused this one; without such an error, a program was "
        "killed"
    )
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
    UPDATE = "use a host driver and a guest driver that match"
    RECOVERY = "do what the driver recommends: the recovery action in `nvidia-smi -q`"
    RESTART_GUEST = "restart the virtual machine"
    MEMORY_OF_HOST = (
        "if a program uses unified memory (UVM), reset the GPU; otherwise restart the program"
    )
    REPORT = "if it comes back, contact the vendor with the output of `nvidia-bug-report.sh`"


XIDS: dict[int, tuple[str, ErrorSeverity, str]] = {
    # Numbers that mean the same, as of several engines of one kind.
    **dict.fromkeys(
        (11, 32), ("a program's commands arrived corrupted", _PROGRAM, _Do.CHECK_PROGRAM)
    ),
    **dict.fromkeys(
        (19, 56, 111, 112, 115, 116, 117, 118), ("the display engine failed", _WARNING, _Do.REPORT)
    ),
    **dict.fromkeys(
        (27, 28, 29, 34, 35, 36, 42, 60),
        ("the video processor failed for a program", _PROGRAM, _Do.RESTART),
    ),
    **dict.fromkeys((33, 59), ("a micro-controller of the GPU failed", _WARNING, _Do.REPORT)),
    **dict.fromkeys((37, 38), ("the firmware reported an error", _NOTE, _Do.NOTHING)),
    **dict.fromkeys(
        (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135),
        ("a copy engine stopped at an error of a program", _PROGRAM, _Do.RESTART),
    ),
    **dict.fromkeys(
        (47, 65, 73, 142), ("a video encoder failed for a program", _PROGRAM, _Do.RESTART)
    ),
    **dict.fromkeys((66, 67), ("the driver made a forbidden access", _NOTE, _Do.NOTHING)),
    **dict.fromkeys(
        (68, 83, 84, 88, 89, 96, 97, 98),
        ("a video decoder failed for a program", _PROGRAM, _Do.RESTART),
    ),
    **dict.fromkeys(
        (82, 99, 100, 101, 102, 103, 104, 105),
        ("a JPEG decoder failed for a program", _PROGRAM, _Do.RESTART),
    ),
    **dict.fromkeys(
        (86, 139), ("the optical flow engine failed for a program", _PROGRAM, _Do.RESTART)
    ),
    **dict.fromkeys((106, 107), ("a test message of the management bus", _NOTE, _Do.NOTHING)),
    **dict.fromkeys(
        (144, 145, 146, 147, 148, 149, 150), ("error on an NVLink", _WARNING, _Do.NVLINK)
    ),
    # All others.
    6: ("a program's commands arrived corrupted", _PROGRAM, _Do.RESTART),
    7: ("a program's commands had a wrong address", _PROGRAM, _Do.RESTART),
    8: ("the GPU stopped working on a program", _PROGRAM, _Do.RESTART),
    9: ("the driver programmed the GPU wrongly", _WARNING, _Do.REPORT),
    12: ("the driver could not handle an error of the GPU", _WARNING, _Do.REPORT),
    13: ("a program crashed on the graphics engine", _PROGRAM, _Do.CHECK_PROGRAM),
    16: ("the display engine hangs", _WARNING, _Do.REPORT),
    18: ("the GPU was denied access to the PCIe bus", _WARNING, _Do.REPORT),
    24: ("the GPU waited too long for a signal", _WARNING, _Do.REPORT),
    25: ("a program's commands were not valid", _PROGRAM, _Do.CHECK_PROGRAM),
    26: ("the GPU's memory did not answer in time", _WARNING, _Do.REPORT),
    30: ("the driver used a signal wrongly", _WARNING, _Do.REPORT),
    31: ("a program touched memory that it does not own", _PROGRAM, _Do.CHECK_PROGRAM),
    43: ("a program was stopped after an error of its own", _PROGRAM, _Do.CHECK_PROGRAM),
    44: ("a fault while programs took turns", _NOTE, _Do.NOTHING),
    45: ("a program was ended after an earlier error, or killed", _PROGRAM, _Do.FOLLOW),
    46: ("the GPU stopped processing", _WARNING, _Do.RESET),
    48: ("memory error that could not be corrected", _CRITICAL, _Do.REPLACE),
    54: ("the GPU lacks auxiliary power", _WARNING, _Do.POWER),
    57: ("the link to the GPU's memory could not be set up", _WARNING, _Do.REPORT),
    58: ("the link to the GPU's memory is unstable", _WARNING, _Do.REPORT),
    61: ("the GPU's micro-controller warned", _WARNING, _Do.REPORT),
    62: ("the GPU's micro-controller halted", _CRITICAL, _Do.RESET),
    63: ("a bad piece of memory was marked for replacement", _NOTE, _Do.REPAIRED),
    64: ("a bad piece of memory could not be replaced", _CRITICAL, _Do.REPLACE),
    69: ("a program used the graphics engine wrongly", _PROGRAM, _Do.CHECK_PROGRAM),
    74: ("error on an NVLink", _CRITICAL, _Do.NVLINK),
    78: ("a virtual GPU could not start", _WARNING, _Do.UPDATE),
    79: ("the GPU fell off the bus", _CRITICAL, _Do.REBOOT),
    80: ("data reached the GPU corrupted", _PROGRAM, _Do.CHECK_PROGRAM),
    81: ("the VGA part of the GPU failed", _WARNING, _Do.REPORT),
    92: ("corrected memory errors are frequent", _NOTE, _Do.NOTHING),
    93: ("the GPU's settings memory was written too often", _NOTE, _Do.NOTHING),
    94: ("memory error, kept within one program", _WARNING, _Do.CONTAINED),
    95: ("memory error that may have touched every program", _CRITICAL, _Do.REPLACE),
    108: ("an address could not be translated at the other end of an NVLink", _NOTE, _Do.NOTHING),
    109: ("a program did not make way for another in time", _WARNING, _Do.RESET),
    110: ("the GPU found its security violated", _WARNING, _Do.RESET),
    113: ("the link to a display could not be set up", _WARNING, _Do.REPORT),
    114: ("a display ran out of picture data", _WARNING, _Do.REPORT),
    119: ("the GPU's system processor (GSP) did not answer", _CRITICAL, _Do.RESET),
    120: ("the GPU's system processor (GSP) failed", _CRITICAL, _Do.RESET),
    121: ("error on the link between chips (C2C)", _WARNING, _Do.REPORT),
    122: ("the GPU's flash memory could not be read", _WARNING, _Do.REPORT),
    123: ("the GPU's flash memory could not be written", _WARNING, _Do.REPORT),
    124: ("the GPU's flash memory could not be erased", _WARNING, _Do.REPORT),
    125: ("the GPU's settings memory is damaged", _WARNING, _Do.REPORT),
    136: ("an NVLink could not be set up", _WARNING, _Do.NVLINK),
    137: ("an access over an NVLink was refused", _NOTE, _Do.FOLLOW),
    140: ("memory error without recovery", _WARNING, _Do.RESET),
    141: ("an error in CUDA's fast path", _NOTE, _Do.NOTHING),
    143: ("the GPU could not be initialised", _WARNING, _Do.RESET),
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
