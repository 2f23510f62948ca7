"""XIDs in the kernel log, as NVIDIA's driver writes them (470 and later).

``NVRM: Xid (PCI:0000:41:00 GPU-I:05 GPU-CI:00): 31, pid=1234, name=python, Ch 00000008, intr …``

The parts for MIG, the process and its name are absent where they are unknown or of an older driver;
drivers 515 to 565 write ``pid='<unknown>', name=<unknown>`` (``kernel_rc.c`` and ``osapi`` of
NVIDIA/open-gpu-kernel-modules).
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
from gpumon.host.pci import slot
from gpumon.model.accidents import AccidentKind

# The text begins with NVRM, so that no path or name in the message of another part is taken for it.
_XID = re.compile(
    rb"NVRM: Xid \((?:PCI:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})[^)]*\): (\d{1,5})(?!\d)"
    rb"(?:, )?(.*)",
    re.IGNORECASE | re.DOTALL,
)
_PID = re.compile(rb"pid='?(\d{1,10}|<unknown>)'?(?:, |$)")
_NAMED, _UNKNOWN_NAME = b"name=", b"<unknown>, "
_NAME_END = re.compile(rb"(" + NAME + rb"), ")
_ESCAPED_NAME = re.compile(NAME)
_CHANNEL = re.compile(rb"(?:Ch|channel) ((?:0x)?[0-9a-f]{1,16})\b", re.IGNORECASE)


class XidLines(LineParser):
    """Finds XIDs."""

    def feed(self, line: KernelLine) -> KernelReport | None:
        """See ``LineParser.feed``."""
        match = _XID.match(line.text)
        if match is None:
            return None
        pid, name, text = _process(match[5])
        channel = _CHANNEL.match(text)
        return KernelReport(
            line.at,
            AccidentKind.ERROR_CODE,
            slot(match[1].decode(), match[2].decode(), match[3].decode()),
            int(match[4]),
            pid,
            name,
            None if channel is None else channel[1].decode(),
            text_of(text),
        )


def _process(rest: bytes) -> tuple[int | None, str | None, bytes]:
    """The PID, the name of the process and the text, as far as they are certain."""
    given = _PID.match(rest)
    if given is None:
        return None, None, rest
    pid, rest = process_id(given[1]), rest[given.end() :]
    if not rest.startswith(_NAMED):
        return pid, None, rest
    rest = rest[len(_NAMED) :]
    if pid is None and rest.startswith(_UNKNOWN_NAME):
        return None, None, rest.removeprefix(_UNKNOWN_NAME)
    if b", " not in rest:
        return pid, unescaped(rest) if _ESCAPED_NAME.fullmatch(rest) else None, b""
    name, _, text = rest.partition(b", ")
    end = _NAME_END.match(rest)
    if end is None or len(end[1]) != len(name):
        # The name is too long, or it has a comma and nobody knows where it ends.
        return pid, None, text if end is None else rest
    return pid, unescaped(name), text
