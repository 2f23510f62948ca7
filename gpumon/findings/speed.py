"""Why a busy GPU is slow: small kernels, its memory, its links, the host, or another job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpumon.findings.explanation import DCGM, README, ExplanationText
from gpumon.findings.finding import SHORT_CELLS, FindingKind, Severity
from gpumon.findings.groups import jobs
from gpumon.findings.phrases import at_most, spaced, time_of_day
from gpumon.findings.rule import HYSTERESIS, LastingRule, Rule, Words, bound
from gpumon.recording.history import Condition
from gpumon.text.formatting import counted, printable

if TYPE_CHECKING:
    from gpumon.findings.finding import Answer
    from gpumon.findings.groups import JobGroup
    from gpumon.findings.rule import HeldFor, Said
    from gpumon.model.snapshot import Gpu
    from gpumon.model.thresholds import Thresholds
    from gpumon.recording.history import History, Holding

LIST_HYSTERESIS = 15.0
"""Lists of processes cover the last second only, so kernels that run in between are missed."""


class NvlinkErrors(Rule):
    """Packets over NVLink were repeated, or links were trained anew, and lately."""

    kind = FindingKind.NVLINK_ERRORS
    severity = Severity.WARNING
    explanation = ExplanationText(
        (
            "NVLink packets were sent again, or a link was retrained. Both cost time, and can "
            "precede a failure of the link (XID 74)."
        ),
        (
            "a bridge, cable or connector that makes bad contact",
            "a neighbouring GPU that was reset: its links are retrained once",
        ),
        (
            "See whether the count goes on growing while NVLink is used.",
            "If so, drain the machine, then have NVLink checked: `dcgmi diag -r 3`.",
        ),
        "DCGM's health checks (github.com/NVIDIA/DCGM)",
    )
    reported_for: ClassVar[float] = 3600.0
    """Seconds. DCGM's health check fails for one replay or recovery within its minute; a person
    looks later."""
    growing: ClassVar[int] = 2
    """Increases from which it is a warning: the reset of a neighbour trains its links once."""

    def say(self, history: History, gpu: Gpu) -> Said:
        seen = history.nvlink_increases(gpu.uuid, self.reported_for)
        if not seen:
            return None if gpu.nvlink_errors is None else False
        count = sum([more for _, more in seen])
        first, last = seen[0][0], seen[-1][0]
        grows = len(seen) >= self.growing
        errors = counted(count, "NVLink error")
        lately = f"the last {spaced(history.now - last)} ago"
        why = "a link may be failing" if grows else "once, as after the reset of a neighbour"
        return Words(
            f"{errors} (replays and recoveries) since {time_of_day(history, first)}, {lately}: "
            f"{why}",
            at_most(errors, SHORT_CELLS),
            "NVLink!" if grows else "NVLink",
            (
                f"{counted(len(seen), 'increase')} by {count} in all, {lately}",
                *(
                    []
                    if gpu.nvlink_errors is None
                    else [f"{gpu.nvlink_errors} counted since the driver was loaded"]
                ),
            ),
            first,
            Severity.WARNING if grows else Severity.NOTE,
        )


class SlowLink(LastingRule):
    """Under load the PCIe link is below what GPU and machine allow.

    An idle GPU lowers its link, which is no fault.
    """

    kind = FindingKind.SLOW_LINK
    explanation = ExplanationText(
        "Under load the PCIe link has a lower generation or fewer lanes than GPU and machine "
        "allow. Copies between host and GPU may be slower.",
        (
            "a GPU that sits badly in its slot, or a riser",
            "a slot that has fewer lanes, or a limit in the firmware's settings",
            "errors on the link, after which it was retrained at a lower speed",
        ),
        (
            "Compare with other GPUs of the machine: `nvidia-smi -q -d PCIE`.",
            "Look for PCIe errors (AER) in the kernel log; reseat the GPU.",
        ),
        "nvidia-smi(1), GPU Link Info",
        "docs.kernel.org, ABI, sysfs-bus-pci, current_link_speed",
        (
            "Compare with other GPUs of the machine: LnkSta in `sudo lspci -vv`.",
            "Look for PCIe errors (AER) in the kernel log; reseat the GPU.",
        ),
    )
    after = 120.0
    """The link is read several times a minute."""
    hysteresis = HYSTERESIS
    busy: ClassVar[float] = 50.0
    """Percent. The link is lowered while the GPU is not in use (nvidia-smi's manual, "GPU Link
    Info")."""

    def holds(self, gpu: Gpu, utilization_gpu: int) -> bool | None:
        if utilization_gpu < self.busy:
            return False
        generation, width = gpu.pcie_generation, gpu.pcie_width
        most, widest = gpu.pcie_generation_max, gpu.pcie_width_max
        if generation is None or most is None or width is None or widest is None:
            return None
        return generation < most or width < widest

    def say(
        self,
        held: HeldFor,
        pcie_generation: int,
        pcie_generation_max: int,
        pcie_width: int,
        pcie_width_max: int,
    ) -> Said:
        generation = f"{pcie_generation} of {pcie_generation_max}"
        width = f"x{pcie_width} of x{pcie_width_max}"
        lower = [
            *([f"gen {generation}"] if pcie_generation < pcie_generation_max else []),
            *([width] if pcie_width < pcie_width_max else []),
        ]
        if not lower:
            return False
        return Words(
            f"the PCIe link is at {' and '.join(lower)} under load, for {held}: copies to and from "
            "the host may be slower",
            at_most(f"slow PCIe: {', '.join(lower)}", SHORT_CELLS),
            "slow PCIe",
            (
                f"PCIe generation {generation}, width {width}",
                f"at least {self.busy:g} % busy in {counted(held.samples, 'sample')}",
            ),
        )


class BusyEmpty(LastingRule):
    """Kernels run nearly all the time, but on few of the multiprocessors.

    A collective that waits looks the same: its kernel needs few SMs. After some time without power
    it is called stuck.
    """

    kind = FindingKind.BUSY_EMPTY
    holder_first = True
    explanation = ExplanationText(
        "A kernel runs nearly all the time, but most multiprocessors (SMs) have no work: the "
        "kernels are probably too small to fill the GPU.",
        (
            "a batch that is too small, or many short kernels",
            "a collective that waits for another rank: its kernel needs few SMs",
        ),
        (
            "Try a larger batch, CUDA graphs or torch.compile.",
            "Give a light job a MIG instance or a smaller GPU, or let jobs share a GPU by MPS.",
        ),
        DCGM,
    )
    after = 300.0
    """The start of a job and a checkpoint look the same, and take less."""
    hysteresis = HYSTERESIS
    busy: ClassVar[float] = 90.0
    most_sm: ClassVar[float] = 20.0
    """Percent. DCGM's documentation ("Profiling Metrics") calls less than 50 of active SMs likely
    ineffective, and 20 is what a kernel with a fifth of the blocks that fit reaches."""

    def holds(self, utilization_gpu: int, sm_active: float) -> bool:
        return sm_active <= self.most_sm and utilization_gpu >= self.busy

    def say(self, held: HeldFor, utilization_gpu: int, sm_active: float) -> Said:
        sm = f"{sm_active:.0f}"
        return Words(
            f"busy but empty for {held}: kernels run nearly all the time, but only {sm} % of its "
            "multiprocessors (SMs) have work; the kernels are probably too small",
            held.after(f"busy but empty, SMs {sm}%, "),
            "empty?",
            (
                f"utilisation {utilization_gpu} %, SMs active {sm} %",
                (
                    f"at least {self.busy:g} % utilisation and at most {self.most_sm:g} % SMs "
                    f"active in {counted(held.samples, 'sample')}"
                ),
            ),
        )


class MemoryBound(LastingRule):
    """The memory limits the speed, which is no fault."""

    kind = FindingKind.MEMORY_BOUND
    holder_first = True
    is_normal_use = True
    explanation = ExplanationText(
        "The memory moves data nearly as fast as it can while the tensor cores do little: the "
        "memory limits the speed. This is not a fault.",
        ("normal for the decoding of language models, and for element-wise kernels",),
        ("A larger batch, fused kernels or a smaller number format may make it faster.",),
        DCGM,
    )
    after = 180.0
    hysteresis = HYSTERESIS
    dram: ClassVar[float] = 80.0
    most_tensor: ClassVar[float] = 25.0
    """Percent. DCGM's documentation ("Profiling Metrics") gives about 80 as the most that is
    reached in practice. Its own load generator reaches more than 90 of the tensor cores, good
    training 40 to 60."""

    def holds(self, dram_active: float, tensor_active: float) -> bool:
        return dram_active >= self.dram and tensor_active <= self.most_tensor

    def say(self, held: HeldFor, dram_active: float, tensor_active: float) -> Said:
        dram, tensor = f"{dram_active:.0f}", f"{tensor_active:.0f}"
        return Words(
            f"memory-bound for {held}: the memory moves data {dram} % of the time, the tensor "
            f"cores work {tensor} %; the memory probably limits the speed, which is not a fault",
            held.after(f"memory-bound, DRAM {dram}%, "),
            "mem-bound",
            (
                f"DRAM active {dram} %, tensor cores {tensor} %",
                (
                    f"at least {self.dram:g} % DRAM and at most {self.most_tensor:g} % tensor "
                    f"cores in {counted(held.samples, 'sample')}"
                ),
            ),
        )


class Starved(LastingRule):
    """The load comes and goes, and a process seems to prepare the data meanwhile.

    Low and high load each return within ``turn`` seconds. While the load is low, a process of the
    GPU is at one full CPU core, or waits inside the kernel; without such evidence there are many
    other reasons, and no finding.
    """

    kind = FindingKind.STARVED
    holder_first = True
    explanation = ExplanationText(
        "The load comes and goes: the GPU probably waits for the host to prepare its data.",
        (
            "checkpoints or evaluations between the steps",
            "short requests to a server, with pauses",
        ),
        (
            (
                "If one CPU core is full: load data with more workers (num_workers), or prepare it "
                "in advance."
            ),
            "If a process waits for disk: read from a faster disk, or keep the data in memory.",
        ),
        "docs.pytorch.org, Performance Tuning Guide",
    )
    after = 180.0
    """Longer than a checkpoint."""
    turn: ClassVar[float] = 30.0
    """Seconds within which a load that comes and goes comes again, and goes again."""
    low: ClassVar[float] = 30.0
    high: ClassVar[float] = 50.0
    """Percent of utilisation."""
    core: ClassVar[float] = 90.0
    most_core: ClassVar[float] = 115.0
    """Percent of a CPU core: one thread, as of Python without data-loading workers (PyTorch's
    Performance Tuning Guide, "num_workers"). More is a program with threads of its own."""
    _LOADED, _ON_CPU, _ON_DISK = "loaded", "low on CPU", "low on disk"

    def conditions(self, thresholds: Thresholds) -> dict[str, Condition]:
        return {
            self._LOADED: Condition(bound(self.is_loaded, thresholds), self.turn),
            self._ON_CPU: Condition(bound(self.is_low_on_cpu, thresholds), self.turn),
            self._ON_DISK: Condition(bound(self.is_low_on_disk, thresholds), self.turn),
        }

    def is_loaded(self, utilization_gpu: int) -> bool:
        """Whether a GPU is loaded."""
        return utilization_gpu >= self.high

    def is_low_on_cpu(self, holding: Holding, utilization_gpu: int) -> bool | None:
        """Whether a GPU does little while one of its processes is at one full CPU core."""
        if utilization_gpu > self.low:
            return False
        cpu = holding.cpu_percent
        if cpu is not None and self.core <= cpu <= self.most_core:
            return True
        return None if holding.unseen else False

    def is_low_on_disk(self, holding: Holding, utilization_gpu: int) -> bool | None:
        """Whether a GPU does little while one of its processes waits inside the kernel."""
        if utilization_gpu > self.low:
            return False
        return bool(holding.blocked) or (None if holding.unseen else False)

    def answer(self, history: History, gpu: Gpu) -> Answer:
        loaded = self.held(history, gpu, self._LOADED)
        if not loaded:
            return loaded
        cpu, disk = (self.held(history, gpu, name) for name in (self._ON_CPU, self._ON_DISK))
        low = disk or cpu
        if not low:
            return None if None in (disk, cpu) else False
        held = max(loaded, low, key=lambda held: held.interval.since)
        if disk:
            why, short = "a process waits inside the kernel (D state)", "waits for disk"
            guess = "it probably waits for a disk or a network file system"
        else:
            why, short = "a process is at one full CPU core", "CPU core full"
            guess = "one thread probably prepares the data"
        words = Words(
            f"perhaps starved for {held}: the load comes and goes while {why}; {guess}",
            held.after(f"starved? {short}, "),
            "starved?",
            (
                (
                    f"at most {self.low:g} % busy with this, then at least {self.high:g} % busy; "
                    f"each came back within {self.turn:g} s"
                ),
                why,
            ),
        )
        return self._finding(gpu.uuid, words, held)


class Shared(LastingRule):
    """Kernels of two jobs run on one GPU."""

    kind = FindingKind.SHARED
    explanation = ExplanationText(
        "Kernels of two jobs run on this GPU. They take turns, so each is slower.",
        ("jobs that were meant to share it, as with MPS",),
        ("Give each job its own GPU: `gpumon select` finds a free one.",),
        "docs.nvidia.com/deploy/mps",
        README,
    )
    after = 120.0
    hysteresis = LIST_HYSTERESIS
    least_sm: ClassVar[float] = 20.0
    """Percent of each job. A heuristic: a job with less hardly slows the other one."""

    def holds(self, holding: Holding) -> bool | None:
        return None if holding.second_sm is None else holding.second_sm >= self.least_sm

    def say(self, history: History, gpu: Gpu, held: HeldFor) -> Said:
        here = [(job, _sm_on(job, gpu)) for job in jobs_on(history, gpu)]
        here.sort(key=lambda item: -item[1])
        count = max(2, len([sm for _, sm in here if sm >= self.least_sm]))
        return Words(
            f"{count} jobs share this GPU for {held}: their kernels take turns",
            held.after(f"shared by {count} jobs, "),
            f"{count} jobs",
            tuple(
                f"{job.label} of {', '.join(printable(user or '?') for user in job.users)}: "
                f"SM {sm} %"
                for job, sm in here[:count]
            ),
        )


def jobs_on(history: History, gpu: Gpu) -> list[JobGroup]:
    """The jobs on a GPU."""
    processes = () if history.latest is None else history.latest.processes
    # All processes are grouped, because a launcher is known by its processes on other GPUs.
    each = jobs([process for process in processes if process.type != "G"])
    return [job for job in each if gpu.index in job.gpus]


def _sm_on(job: JobGroup, gpu: Gpu) -> int:
    """The SM use of a job on a GPU, as far as known, in percent."""
    uses = [use for process in job.processes for use in process.uses if use.gpu_uuid == gpu.uuid]
    return sum([use.sm or 0 for use in uses])
