"""What the kernel's OOM killer writes to the kernel log.

Two lines of ``mm/oom_kill.c``: ``dump_oom_victim`` (4.19 and later), ``__oom_kill_process``. With
``memory.oom.group`` the first names one process of the cgroup, and each process has a second::

    oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a/job_91,
        task_memcg=/a/job_91/step_0,task=python3,pid=42,uid=1001
    Memory cgroup out of memory: Killed process 42 (python3) total-vm:9kB, anon-rss:8kB, file-rss:…
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
from gpumon.model.accidents import AccidentKind

# The PID is found from the end, because paths and the name before it may contain all of this.
_CHOSEN = re.compile(rb"oom-kill:constraint=.*,task=(" + NAME + rb"),pid=(\d+),uid=\d+")
_LIMITED = re.compile(rb",oom_memcg=([^\n]*),task_memcg=")
_KILLED = re.compile(
    rb"(?:(Memory cgroup out of memory|Out of memory(?: \(oom_kill_allocating_task\))?): )?"
    rb"Killed process (\d+) \((" + NAME + rb")\),? (?:UID \d+,? )?total-vm:\d+kB, "
    rb"anon-rss:(\d+)kB, file-rss:(\d+)kB(?:, shmem-rss:(\d+)kB)?.*"
)
_SAME_SECONDS = 1.0
"""Within so many seconds the kernel writes of all processes of a cgroup that it kills together."""


class OomLines(LineParser):
    """Finds the processes that the OOM killer killed."""

    def __init__(self) -> None:
        super().__init__()
        self._newest: KernelReport | None = None

    def feed(self, line: KernelLine) -> KernelReport | None:
        """See ``LineParser.feed``."""
        if line.text.startswith(b"oom-kill:") and (chosen := _CHOSEN.fullmatch(line.text)):
            report = KernelReport(
                line.at,
                AccidentKind.OUT_OF_MEMORY,
                pid=process_id(chosen[2]),
                process_name=unescaped(chosen[1]),
                cgroup=_cgroup(line.text),
            )
            self._newest = report
            return self.hold(report.pid, report)
        if b"Killed process " in line.text and (killed := _KILLED.fullmatch(line.text)):
            return self._complete(line.at, killed)
        return None

    def _complete(self, at: float, killed: re.Match[bytes]) -> KernelReport:
        reason, pid, name, *sizes = killed.groups()
        report = self.take_held(process_id(pid))
        if report is None:
            report = KernelReport(at, AccidentKind.OUT_OF_MEMORY, pid=process_id(pid))
            newest, in_cgroup = self._newest, (reason or b"").startswith(b"Memory cgroup")
            if in_cgroup and newest is not None and 0 <= at - newest.at <= _SAME_SECONDS:
                report = replace(report, cgroup=newest.cgroup)
        memory = sum(int(size) for size in sizes if size and len(size) < 15) * 1024
        return replace(
            report, process_name=unescaped(name), memory=memory, text=text_of(reason or b"")
        )


def _cgroup(line: bytes) -> str | None:
    """The cgroup whose limit was met; ``None`` if it was none, or its name makes that ambiguous."""
    if line.count(b"oom_memcg=") != 1 or line.count(b",task_memcg=") != 1:
        return None
    limited = _LIMITED.search(line)
    return None if limited is None else unescaped(limited[1])
