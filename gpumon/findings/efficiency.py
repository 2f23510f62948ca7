"""Findings about how much of a busy GPU works, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings.conditions import (
    BUSY_EMPTY,
    IDLE_IN_JOB,
    LOADED,
    LOW_ON_CPU,
    LOW_ON_DISK,
    MEMORY_BOUND,
    SHARED,
    TURN,
)
from gpumon.findings.finding import Answer, Finding, FindingKind, Severity
from gpumon.findings.groups import jobs
from gpumon.findings.phrases import (
    brief_duration,
    count_processes,
    long_duration,
    short_duration,
    with_duration,
)
from gpumon.findings.work import lasting
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from gpumon.findings.groups import JobGroup
    from gpumon.model.snapshot import Gpu
    from gpumon.recording.history import History


def busy_empty(history: History, gpu: Gpu) -> Answer:
    """Kernels run nearly all the time, but on few of the multiprocessors.

    A collective that waits looks the same: its kernel needs few SMs. After some time without power
    it is called stuck.
    """
    thresholds = history.thresholds
    interval = lasting(history, gpu, BUSY_EMPTY, thresholds.busy_empty_after)
    if not interval or gpu.sm_active is None:
        return interval and None
    sm = f"{gpu.sm_active:.0f}"
    return Finding(
        kind=FindingKind.BUSY_EMPTY,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"busy but empty for {long_duration(history, interval)}: kernels run nearly all "
        f"the time, but only {sm} % of its multiprocessors (SMs) have work; the kernels are "
        "probably too small",
        short=with_duration(f"busy but empty, SMs {sm}%, ", history, interval),
        brief="empty?",
        since=interval.since,
        evidence=(
            f"utilisation {gpu.utilization_gpu} %, SMs active {sm} %",
            (
                f"at least {thresholds.busy_empty_utilization:g} % and at most "
                f"{thresholds.busy_empty_sm:g} % in {counted(interval.samples, 'sample')}"
            ),
        ),
    )


def memory_bound(history: History, gpu: Gpu) -> Answer:
    """The memory limits the speed, which is no fault."""
    thresholds = history.thresholds
    interval = lasting(history, gpu, MEMORY_BOUND, thresholds.memory_bound_after)
    if not interval or gpu.dram_active is None or gpu.tensor_active is None:
        return interval and None
    dram, tensor = f"{gpu.dram_active:.0f}", f"{gpu.tensor_active:.0f}"
    return Finding(
        kind=FindingKind.MEMORY_BOUND,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"memory-bound for {long_duration(history, interval)}: the memory moves data "
        f"{dram} % of the time, the tensor cores work {tensor} %; the memory probably limits the "
        "speed, which is no fault",
        short=with_duration(f"memory-bound, DRAM {dram}%, ", history, interval),
        brief="mem-bound",
        since=interval.since,
        evidence=(
            f"DRAM active {dram} %, tensor cores {tensor} %",
            (
                f"at least {thresholds.memory_bound_dram:g} % and at most "
                f"{thresholds.memory_bound_tensor:g} % in {counted(interval.samples, 'sample')}"
            ),
        ),
    )


def starved(history: History, gpu: Gpu) -> Answer:
    """The load comes and goes, and a process seems to prepare the data meanwhile.

    Low and high load each return within ``conditions.TURN``. While the load is low, a process of
    the GPU is at one full CPU core, or waits inside the kernel; without such evidence there are
    many other reasons, and no finding.
    """
    thresholds = history.thresholds
    after = thresholds.starved_after
    loaded = lasting(history, gpu, LOADED, after)
    if not loaded:
        return loaded
    disk, cpu = (lasting(history, gpu, name, after) for name in (LOW_ON_DISK, LOW_ON_CPU))
    low, on_disk = disk or cpu, bool(disk)
    if not low:
        return None if None in (disk, cpu) else False
    interval = max(loaded, low, key=lambda one: one.since)
    if on_disk:
        why, words = "a process waits inside the kernel (D state)", "waits for disk"
        guess = "it probably waits for a disk or a network file system"
    else:
        why, words = "a process is at one full CPU core", "CPU core full"
        guess = "one thread probably prepares the data"
    return Finding(
        kind=FindingKind.STARVED,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"perhaps starved for {long_duration(history, interval)}: the load comes and goes "
        f"while {why}; {guess}",
        short=with_duration(f"starved? {words}, ", history, interval),
        brief="starved?",
        since=interval.since,
        evidence=(
            (
                f"at most {thresholds.starved_low:g} % busy with this in "
                f"{counted(low.samples, 'sample')}, at "
                f"least {thresholds.starved_high:g} % in {loaded.samples}; each returned within "
                f"{TURN:g} s"
            ),
            why,
        ),
    )


def idle_in_job(history: History, gpu: Gpu) -> Answer:
    """A GPU does nothing while its job works on most of its other GPUs."""
    interval = lasting(history, gpu, IDLE_IN_JOB, history.thresholds.idle_in_job_after)
    if not interval or gpu.utilization_gpu:
        return interval and False
    job = _job_elsewhere(history, gpu)
    if job is None:
        return None
    others = ", ".join(str(index) for index in job.gpus if index != gpu.index)
    return Finding(
        kind=FindingKind.IDLE_IN_JOB,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"idle for {long_duration(history, interval)} while its job, {job.label}, works "
        f"on GPU {others}: its part may hang, or have nothing to do",
        short=f"idle {short_duration(history, interval)}, its job works",
        brief=f"idle {brief_duration(history, interval)}",
        since=interval.since,
        evidence=(
            f"utilisation 0 % in {counted(interval.samples, 'sample')}",
            (
                f"{job.label}: {count_processes(len(job.processes))} on GPU "
                f"{', '.join(map(str, job.gpus))}, with kernels on most of the others"
            ),
        ),
    )


def shared(history: History, gpu: Gpu) -> Answer:
    """Kernels of two jobs run on one GPU."""
    interval = lasting(history, gpu, SHARED, history.thresholds.shared_after)
    if not interval:
        return interval
    here = [(job, _sm_on(job, gpu)) for job in _jobs_on(history, gpu)]
    here.sort(key=lambda one: -one[1])
    count = max(2, len([sm for _, sm in here if sm >= history.thresholds.shared_sm]))
    return Finding(
        kind=FindingKind.SHARED,
        subject=gpu.uuid,
        severity=Severity.NOTE,
        sentence=f"{count} jobs share this GPU for {long_duration(history, interval)}: their "
        "kernels take turns",
        short=with_duration(f"shared by {count} jobs, ", history, interval),
        brief=f"{count} jobs",
        since=interval.since,
        evidence=tuple(
            f"{job.label} of {', '.join(printable(user or '?') for user in job.users)}: SM {sm} %"
            for job, sm in here[:count]
        ),
    )


def _sm_on(job: JobGroup, gpu: Gpu) -> int:
    """The SM use of a job on a GPU, as far as known, in percent."""
    uses = [use for process in job.processes for use in process.uses if use.gpu_uuid == gpu.uuid]
    return sum([use.sm or 0 for use in uses])


def _job_elsewhere(history: History, gpu: Gpu) -> JobGroup | None:
    """The largest job on a GPU that has other GPUs too."""
    here = [job for job in _jobs_on(history, gpu) if len(job.gpus) > 1]
    return max(here, key=lambda job: len(job.gpus), default=None)


def _jobs_on(history: History, gpu: Gpu) -> list[JobGroup]:
    processes = () if history.latest is None else history.latest.processes
    # All processes are grouped, because a launcher is known by its processes on other GPUs.
    each = jobs([process for process in processes if process.type != "G"])
    return [job for job in each if gpu.index in job.gpus]
