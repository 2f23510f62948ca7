"""What each kind of finding means, what else it could be, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.findings.finding import FindingKind
from gpumon.findings.phrases import spaced, time_of_day
from gpumon.host.visible_devices import MAIN_VARIABLE
from gpumon.model.makers import Maker, maker_of
from gpumon.sources.maker_words import words_of

if TYPE_CHECKING:
    from gpumon.findings.finding import Finding
    from gpumon.recording.history import History


class Explanation(Struct, frozen=True):
    """A finding, explained.

    Attributes:
        finding: The finding.
        seen: What was seen: the evidence, or the sentence of a finding without evidence.
        since: Since when, as text: ``since 14:02, for 22 m``; ``None`` if that is not known.
        meaning: What the state means.
        causes: What it could be instead, or what can cause it; empty if there is nothing else.
        advice: What to do.
        source: Where this is documented.
    """

    finding: Finding
    seen: tuple[str, ...]
    since: str | None
    meaning: str
    causes: tuple[str, ...]
    advice: tuple[str, ...]
    source: str


def explain(history: History, finding: Finding) -> Explanation:
    """A finding of the newest snapshot, explained. The texts are safe to print."""
    text = _text_for(history, finding)
    since = None
    if finding.since is not None:
        length = spaced(max(0.0, history.now - finding.since))
        since = f"since {time_of_day(history, finding.since)}, for {length}"
    return Explanation(
        finding=finding,
        seen=finding.evidence or (finding.sentence,),
        since=since,
        meaning=text.meaning,
        causes=text.causes,
        advice=text.advice,
        source=text.source,
    )


def _text_for(history: History, finding: Finding) -> ExplanationText:
    """The texts for a finding, in the words of the GPU's maker."""
    text = EXPLANATIONS[finding.kind]
    gpus = () if history.latest is None else history.latest.gpus
    name = next((gpu.name for gpu in gpus if gpu.uuid == finding.subject), None)
    maker = maker_of(name)
    advice, source = text.advice, text.source
    if maker is not Maker.NVIDIA:
        advice, source = text.other_advice or advice, text.other_source or source
    log, variable = words_of(name).kernel_log, MAIN_VARIABLE[maker]
    advice = tuple(one.format(log=log, variable=variable) for one in advice)
    return ExplanationText(text.meaning, text.causes, advice, source)


class ExplanationText(Struct, frozen=True):
    """The texts for a kind of finding; see ``Explanation``.

    Attributes:
        meaning: For GPUs of every maker, as the causes.
        causes: See ``Explanation``.
        advice: With ``{log}`` and ``{variable}`` for the words of the maker.
        source: Where this is documented for NVIDIA's GPUs.
        other_source: The same for other makers; empty if it is the same.
        other_advice: The advice for other makers; empty if it is the same.
    """

    meaning: str
    causes: tuple[str, ...]
    advice: tuple[str, ...]
    source: str
    other_source: str = ""
    other_advice: tuple[str, ...] = ()


_DEBUG = "docs.nvidia.com/deploy/gpu-debug-guidelines"
_XIDS = "docs.nvidia.com/deploy/xid-errors"
_MEMORY = "docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt"
_CLOCKS = "docs.nvidia.com/deploy/nvml-api, NvmlClocksEventReasons"
_NVML = "docs.nvidia.com/deploy/nvml-api"
_DCGM = "docs.nvidia.com/datacenter/dcgm, Profiling Metrics"
_DCGM_HEALTH = "DCGM's health checks (github.com/NVIDIA/DCGM)"
_LOADING = "docs.pytorch.org, Performance Tuning Guide"
_OWN = "README.md of gpumon"

_WAIT_OR_ASK = "Ask the owner of its processes before you use it."

_KERNEL = "docs.kernel.org, gpu"
_LOOK = "Look for {log} in the kernel log: `sudo dmesg`."
_AS_ROOT = "As root gpumon sees the processes of all users."

EXPLANATIONS: dict[FindingKind, ExplanationText] = {
    FindingKind.LOST: ExplanationText(
        "The driver cannot reach the GPU any more. What ran on it has failed.",
        ("a hardware fault", "its power or its slot", "a driver that crashed"),
        (
            "Look for the XID in the kernel log.",
            "End what still holds the GPU, then reboot; if it happens again, report the GPU.",
        ),
        _DEBUG,
        f"{_KERNEL}/drm-uapi, Device Hot-Unplug",
        (
            _LOOK,
            "End what still holds the GPU, then reboot; if it happens again, report the GPU.",
        ),
    ),
    FindingKind.RESET_REQUIRED: ExplanationText(
        "The GPU met an error that only a reset clears. Nothing runs on it until then.",
        ("a hardware fault, if it comes back after the reset",),
        ("Reset it once nothing uses it, or reboot. gpumon never resets a GPU.",),
        _DEBUG,
    ),
    FindingKind.NO_ANSWER: ExplanationText(
        "A call to the driver about this GPU has not come back. Its values are unknown.",
        ("the GPU is about to be lost", "a driver that is overloaded, or waits for a reset"),
        ("Wait a minute, then look for an XID in the kernel log.",),
        "github.com/NVIDIA/open-gpu-kernel-modules/issues/1333",
        f"{_KERNEL}/drm-uapi, Device reset",
        ("Wait a minute: the driver may be resetting the GPU.", _LOOK),
    ),
    FindingKind.FAILING: ExplanationText(
        "Most calls about this GPU fail with an error that names no cause.",
        ("a GPU that is about to be lost", "a container that lost access to its devices"),
        ("Look for an XID in the kernel log.", "Restart the container, if it is one."),
        _DEBUG,
        f"{_KERNEL}/drm-uapi",
        (_LOOK, "Restart the container, if it is one."),
    ),
    FindingKind.MEMORY_ERRORS: ExplanationText(
        "Cells of the GPU's memory failed. The driver replaces them at the next reset.",
        ("memory that wears out, if it happens repeatedly",),
        (
            "Reset the GPU or reboot once nothing uses it.",
            "If no spare rows are left, return the GPU.",
        ),
        _MEMORY,
        f"{_KERNEL}/amdgpu/ras",
        (_LOOK, "Drain the GPU, and reboot once nothing uses it."),
    ),
    FindingKind.RECOVERY: ExplanationText(
        "The driver asks for an action before the GPU can be relied on again.",
        (),
        ("Drain, reset or reboot, as it says, once nothing uses the GPU.",),
        f"{_NVML}, nvmlDeviceGpuRecoveryAction_t",
    ),
    FindingKind.HOT: ExplanationText(
        "The GPU is slowed down by heat, or close to it.",
        ("fans or filters that are dirty", "a warm room", "a neighbour that heats it"),
        ("Check fans and air flow.", "A lower power limit keeps it below the limit meanwhile."),
        _CLOCKS,
        f"{_KERNEL}/amdgpu/thermal",
    ),
    FindingKind.THROTTLED: ExplanationText(
        "The hardware halves its clocks or more, for another reason than heat.",
        (
            "a power supply that asks for it (power brake)",
            "a sudden draw that its protection cut off",
            "a change of clocks, if it lasts for a moment only",
        ),
        ("Check power supplies and cables.", "A lower power limit may avoid it."),
        _CLOCKS,
    ),
    FindingKind.XID: ExplanationText(
        "The driver reported an error of this GPU, or of a program on it.",
        ("a fault of the hardware or the driver, or a mistake of the program: the number tells",),
        ("Look the number up in NVIDIA's catalogue of XIDs.",),
        _XIDS,
    ),
    FindingKind.NVLINK_ERRORS: ExplanationText(
        "Packets over NVLink were sent again, or a link was trained again. Both cost time, and "
        "can come before a link fails (XID 74).",
        (
            "a bridge, cable or connector that makes bad contact",
            "a neighbour that was reset: its links are trained again once",
        ),
        (
            "See whether the count goes on growing while NVLink is used.",
            "If so, drain the machine, then have NVLink checked: `dcgmi diag -r 3`.",
        ),
        _DCGM_HEALTH,
    ),
    FindingKind.STUCK: ExplanationText(
        "A kernel runs all the time, but draws too little power to compute much. A hung job "
        "looks like this: a kernel that waits for others counts as running.",
        (
            "a collective that waits for a slower or a dead rank",
            "a light job with many small kernels",
        ),
        (
            "See whether the job still writes output.",
            "Look for the rank that does not take part: `py-spy dump` shows where it waits.",
        ),
        f"{_NVML}, nvmlUtilization_t",
        f"{_KERNEL}/amdgpu/thermal, gpu_busy_percent",
    ),
    FindingKind.UNATTRIBUTED: ExplanationText(
        "More memory is in use than the listed processes and the driver need.",
        (
            "a process that ended or is ending and still holds the GPU",
            "a process in another container, which the driver does not list here",
        ),
        ("See who holds the device file, on the page of the GPU.", "End it, if it is yours."),
        "nvidia-smi(1), Processes",
        f"{_KERNEL}/drm-usage-stats",
        (
            _AS_ROOT,
            "See who holds the device file, on the page of the GPU.",
            "End it, if it is yours.",
        ),
    ),
    FindingKind.BUSY_UNLISTED: ExplanationText(
        "Kernels run, but the driver lists no process.",
        ("a process in another container", "a process that ended a moment ago"),
        ("Do not count on the GPU being free.",),
        "nvidia-smi(1), Processes",
        f"{_KERNEL}/drm-usage-stats",
        (_AS_ROOT, "Do not count on the GPU being free."),
    ),
    FindingKind.IDLE_IN_JOB: ExplanationText(
        "The job works on its other GPUs and not on this one.",
        (
            "a rank that hangs, or ended without the others",
            "work that is divided unevenly, such as a pipeline or an evaluation on one GPU",
            "a program that uses fewer GPUs than it opened",
        ),
        (
            "Look at the process of this GPU: its state, its CPU use, its output.",
            "If the job does not need the GPU, give it fewer: {variable}.",
        ),
        "docs.pytorch.org, torch.distributed, Debugging",
    ),
    FindingKind.IDLE: ExplanationText(
        "A computing process holds the GPU, and no kernel has run for a while.",
        (
            "a notebook that was left open",
            "a job that reads data or saves a checkpoint",
            "a server without requests",
        ),
        ("Ask its owner, or end it if it is yours.",),
        f"{_NVML}, nvmlUtilization_t",
        f"{_KERNEL}/drm-usage-stats",
    ),
    FindingKind.IDLE_PROCESS: ExplanationText(
        "The process holds GPU memory, and none of its kernels has run for a while.",
        ("a notebook that was left open", "a job that waits for data or for other ranks"),
        ("Ask its owner, or end it if it is yours.",),
        f"{_NVML}, nvmlDeviceGetProcessUtilization",
    ),
    FindingKind.SLOW_LINK: ExplanationText(
        "Under load the PCIe link has a lower generation or fewer lanes than GPU and machine "
        "allow. Copies between host and GPU may be slower.",
        (
            "a card that sits badly in its slot, or a riser",
            "a slot that has fewer lanes, or a limit in the firmware's settings",
            "errors on the link, for which it was trained lower",
        ),
        (
            "Compare with other GPUs of the machine: `nvidia-smi -q -d PCIE`.",
            "Look for PCIe errors (AER) in the kernel log; reseat the card.",
        ),
        "nvidia-smi(1), GPU Link Info",
        "docs.kernel.org, ABI, sysfs-bus-pci, current_link_speed",
        (
            "Compare with other GPUs of the machine: LnkSta in `sudo lspci -vv`.",
            "Look for PCIe errors (AER) in the kernel log; reseat the card.",
        ),
    ),
    FindingKind.BUSY_EMPTY: ExplanationText(
        "Some kernel runs nearly all the time, but most multiprocessors (SMs) have no work: the "
        "kernels are probably too small to fill the GPU.",
        (
            "a batch that is too small, or many short kernels",
            "a collective that waits for another rank: its kernel needs few SMs",
        ),
        (
            "Try a larger batch, CUDA graphs or torch.compile.",
            "A light job needs only a MIG instance or a smaller GPU, or shares one by MPS.",
        ),
        _DCGM,
    ),
    FindingKind.STARVED: ExplanationText(
        "The load comes and goes: the GPU probably waits for the host to prepare its data.",
        (
            "checkpoints or evaluations between the steps",
            "short requests to a server, with pauses",
        ),
        (
            "At one full core: load data with more workers (num_workers), or prepare it before.",
            "In D state: read from a faster disk, or keep the data in memory.",
        ),
        _LOADING,
    ),
    FindingKind.SHARED: ExplanationText(
        "Kernels of two jobs run on this GPU. They take turns, so each is slower.",
        ("jobs that were meant to share it, as with MPS",),
        ("Give each job its own GPU: `gpumon select` finds a free one.",),
        "docs.nvidia.com/deploy/mps",
        _OWN,
    ),
    FindingKind.FILLING: ExplanationText(
        "The used memory grows steadily. When it is full, the next allocation fails.",
        (
            "a leak, such as results that are kept with their graph",
            "a cache that stops growing by itself",
        ),
        (
            "See which process grows, on the page of the GPU.",
            "Save a checkpoint before the memory is full.",
        ),
        "docs.pytorch.org, Understanding CUDA Memory Usage",
    ),
    FindingKind.MEMORY_BOUND: ExplanationText(
        "The memory moves data nearly as fast as it can while the tensor cores do little: the "
        "memory limits the speed. This is no fault.",
        ("normal for the decoding of language models, and for element-wise kernels",),
        ("A larger batch, fused kernels or a smaller number format may make it faster.",),
        _DCGM,
    ),
    FindingKind.SLOWED_LATELY: ExplanationText(
        "The clocks were lowered for this share of the last hour. A software power cap is normal "
        "for a busy GPU; the other reasons cost work.",
        ("a power limit that somebody lowered", "heat", "a power supply that asks for it"),
        ("Compare the limit with the highest one: `nvidia-smi -q -d POWER`.",),
        _CLOCKS,
        f"{_KERNEL}/amdgpu/thermal",
        ("Compare the limit with the highest one, on the page of the GPU.",),
    ),
    FindingKind.GROWING: ExplanationText(
        "The GPU memory of the process grows steadily.",
        (
            "a leak, such as results that are kept with their graph",
            "a cache that stops growing by itself",
        ),
        ("Save a checkpoint before the memory is full.",),
        "docs.pytorch.org, Understanding CUDA Memory Usage",
    ),
    FindingKind.PREALLOCATED: ExplanationText(
        "The framework takes most of the memory at its start, needed or not.",
        ("a program that does need it",),
        ("The finding names the setting that changes it.",),
        "docs.jax.dev, GPU memory allocation; tensorflow.org/guide/gpu",
    ),
    FindingKind.RESERVED: ExplanationText(
        "`gpumon run` keeps the GPU for a job that is about to start or runs.",
        (),
        ("Select another GPU, or wait: `gpumon wait`.",),
        "docs/run.md of gpumon",
    ),
    FindingKind.FULL: ExplanationText(
        "Too little memory is left for another process.",
        ("memory that a framework took in advance and does not use",),
        ("Select another GPU: `gpumon select --free 10G`.", _WAIT_OR_ASK),
        _OWN,
    ),
    FindingKind.OLD: ExplanationText(
        "gpumon waits for the driver, or for this machine. The values are of an earlier moment.",
        ("another GPU that does not answer", "a machine that is overloaded"),
        ("Look at the GPU that does not answer.",),
        _OWN,
    ),
    FindingKind.NO_PERMISSION: ExplanationText(
        "This user may not open the GPU, or this container was not given it.",
        (),
        ("Start the container with this GPU, or ask an administrator.",),
        "docs.nvidia.com/datacenter/cloud-native, NVIDIA_VISIBLE_DEVICES",
        f"{_KERNEL}/drm-uapi, Render nodes",
        ("Ask for the group that owns /dev/dri/renderD*, often render or video.",),
    ),
    FindingKind.ASLEEP: ExplanationText(
        "The kernel powered the GPU down while nobody uses it. gpumon does not wake it.",
        (),
        ("Nothing: it wakes when a program uses it.",),
        "kernel.org, Documentation/power/runtime_pm",
    ),
    FindingKind.FREE: ExplanationText(
        "No process computes on the GPU, its memory is empty and it is not reserved.",
        (),
        ("Use it: `gpumon run` reserves it for your job.",),
        "docs/select.md of gpumon",
    ),
    FindingKind.WORKING: ExplanationText(
        "The GPU is in use, and nothing about it is worth telling.",
        (),
        (_WAIT_OR_ASK,),
        _OWN,
    ),
    FindingKind.UNKNOWN: ExplanationText(
        "The driver reports nothing to judge by.",
        ("a GPU in MIG mode, or of a kind that reports little",),
        ("The page of the GPU says why each value is unknown.",),
        _OWN,
    ),
}
"""The texts for each kind."""
