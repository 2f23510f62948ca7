"""What ``i915`` and ``xe`` write to the kernel log while a GPU hangs.

``error_msg`` and ``intel_gt_reset`` of ``i915``, ``guc_exec_queue_timedout_job`` and ``gt_reset``
of ``xe``; older kernels have no process in the line of ``xe``::

    i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:85dffffb, in game [42]
    i915 0000:00:02.0: [drm] GT0: Resetting chip for stopped heartbeat on rcs0
    xe 0000:03:00.0: [drm] GT0: Timedout job: seqno=1, lrc_seqno=1, guc_id=4, flags=0x0 in game [42]
    xe 0000:03:00.0: [drm] GT0: reset started
"""

from __future__ import annotations

import re

from gpumon.host.kernel_log import (
    NAME,
    KernelLine,
    KernelReport,
    LineParser,
    process_id,
    text_of,
    unescaped,
)
from gpumon.host.pci import slot_of
from gpumon.model.accidents import AccidentKind

_DRIVER = re.compile(
    rb"(?:i915|xe) ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): "
    rb"(?:\[drm\] )?(?:\*ERROR\* )?(?:Tile\d+: )?(?:GT\d+: )?(.*)",
    re.DOTALL,
)
_VALUE = rb"[a-z_]+=[-0-9a-fx]+"
# Nothing before the name is a program's, and the PID is the end of the line.
_TIMEOUT = re.compile(
    rb"(?:GPU HANG: ecode [0-9a-fx:]+|Timedout job: " + _VALUE + rb"(?:, " + _VALUE + rb")*)"
    rb"(?:,? in (" + NAME + rb") \[(-?\d+)\])?"
)
_RESET = re.compile(rb"Resetting chip for .*|reset started", re.DOTALL)


class IntelLines(LineParser):
    """Finds hangs, time-outs of jobs, and resets."""

    def feed(self, line: KernelLine) -> KernelReport | None:
        """See ``LineParser.feed``."""
        match = _DRIVER.fullmatch(line.text)
        if match is None:
            return None
        slot, text = slot_of(match[1].decode()), match[2]
        if timeout := _TIMEOUT.fullmatch(text):
            name, digits = timeout.groups(b"")
            pid = process_id(digits)  # xe writes ``in no process [-1]``.
            return KernelReport(
                line.at,
                AccidentKind.TIMEOUT,
                slot,
                pid=pid,
                process_name=None if pid is None else unescaped(name),
                text=text_of(text),
            )
        if _RESET.fullmatch(text):
            return KernelReport(line.at, AccidentKind.RESET, slot, text=text_of(text))
        return None
