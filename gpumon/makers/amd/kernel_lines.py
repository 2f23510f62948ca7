"""What ``amdgpu`` writes to the kernel log while a GPU hangs.

``amdgpu_job_timedout`` writes of the ring, then of the process whose work it was. Older kernels
write both without the GPU, as in the first line below::

    [drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=5, emitted seq=7
    amdgpu 0000:28:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=5, emitted seq=7
    amdgpu 0000:28:00.0: amdgpu: Process information: process game pid 42 thread game:cs0 pid 43
    amdgpu 0000:28:00.0: amdgpu:  Process game pid 42 thread game:cs0 pid 43
    amdgpu 0000:28:00.0: amdgpu: GPU reset begin!
"""

from __future__ import annotations

import re

from msgspec.structs import replace

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
    rb"(?:amdgpu ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]): (?:amdgpu: )?(?:\[drm\] )?"
    rb"(?:\*ERROR\* )?|\[drm:amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* )(.*)",
    re.DOTALL,
)
_TIMEOUT = re.compile(rb"ring ([\w.-]{1,32}) timeout, (?:signaled seq=|but soft recovered).*")
_RESET = re.compile(rb"GPU reset begin!.*")
_PARTS = (rb"(?:Process information: process| ?Process) (", rb") pid (\d+) thread ", rb" pid \d+")
_PROCESS_LONGEST = re.compile(_PARTS[0] + NAME + _PARTS[1] + NAME + _PARTS[2])
_PROCESS_SHORTEST = re.compile(_PARTS[0] + NAME + rb"?" + _PARTS[1] + NAME + _PARTS[2])


class AmdgpuLines(LineParser):
    """Finds time-outs of rings, and resets."""

    def feed(self, line: KernelLine) -> KernelReport | None:
        """See ``LineParser.feed``."""
        match = _DRIVER.fullmatch(line.text)
        if match is None:
            return None
        slot, text = None if match[1] is None else slot_of(match[1].decode()), match[2]
        if timeout := _TIMEOUT.fullmatch(text):
            ring = timeout[1].decode()
            report = KernelReport(
                line.at, AccidentKind.TIMEOUT, slot, channel=ring, text=text_of(text)
            )
            return self.hold(slot, report)
        if _RESET.fullmatch(text):
            return KernelReport(line.at, AccidentKind.RESET, slot, text=text_of(text))
        if b"rocess " in text and (shortest := _PROCESS_SHORTEST.fullmatch(text)):
            held = self.take_held(slot)
            longest = _PROCESS_LONGEST.fullmatch(text)
            if held is None or longest is None or longest.span(1) != shortest.span(1):
                # Of no time-out, or its name contains such a line: which PID is its is not known.
                return held
            pid = process_id(shortest[2])
            name = None if pid is None else unescaped(shortest[1])
            return replace(held, pid=pid, process_name=name)
        return None
