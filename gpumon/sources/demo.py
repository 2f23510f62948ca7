"""A made-up machine to look at without a card: eight H100s shared by a handful of people.

Everything in it is a function of the seed, the moment the demo began and the time asked for, and of
nothing else: the same seed and clock give the same snapshots, however often and in whatever order
they are taken. So the hours before the demo began can be told too, and findings such as "idle for
3 hours" rest on history here as they do on a real machine.

Only ``Snapshot.source`` says that none of it is real. The process numbers are invented and may be
those of real processes: nothing may be done to a process of a snapshot whose source is ``demo``.
"""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from gpumon.clock import SystemClock
from gpumon.metrics import GPU_METRICS
from gpumon.model import (
    CardStatus,
    Gpu,
    GpuProcess,
    GpuUse,
    Host,
    ProcessId,
    Snapshot,
    Unknown,
)
from gpumon.selection import ALL, GpuSelection
from gpumon.sources import SourceError
from gpumon.sources.curves import Area, mean, ripples, scaled, steady, switch, together, wave

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from gpumon.clock import Clock
    from gpumon.sources import Call

_MIB = 2**20
_GIB = 2**30

_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86400.0

_PAST = 4 * _HOUR
# (from so many seconds before the start, seconds from one snapshot to the next): as fine as the
# charts of that past look, and no finer, since all of it is told before the first frame.
_PAST_STEPS = ((_PAST, 60.0), (30 * _MINUTE, 15.0), (2 * _MINUTE, 1.0))

# The story, in seconds after the demo's start.
_NOTEBOOK_LEFT = -(3 * _HOUR + 12 * _MINUTE)
_JOB_STUCK = -22 * _MINUTE
_COOLING_WORSE = -10 * _MINUTE
_THERMAL_SLOWDOWN = -4 * _MINUTE
_CARD_LOST = -5.5 * _MINUTE
_MACHINE_BOOT = -41 * _DAY

_CARDS = 8
_LOST_CARD = 6
_ORPHANED_CARD = 7
_HOT_CARD = 2

_MEMORY_TOTAL = 81559 * _MIB
_MEMORY_RESERVED = 551 * _MIB
_DRIVER_CLIENTS = 4 * _MIB
_ORPHANED = 31 * _GIB
_IDLE_WATTS = 71.0
_TEMPERATURE_TARGET = 87

# What nvidia-smi shows of an eight-way H100 SXM machine.
_PCI_BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
_STATIC: dict[str, Any] = {
    "name": "NVIDIA H100 80GB HBM3",
    "architecture": "Hopper",
    "compute_capability": "9.0",
    "vbios_version": "96.00.99.00.01",
    "memory_total": _MEMORY_TOTAL,
    "memory_reserved": _MEMORY_RESERVED,
    "memory_unified": False,
    "bar1_total": 131072 * _MIB,
    "utilization_encoder": 0,
    "utilization_jpeg": 0,
    "utilization_ofa": 0,
    "temperature_slowdown": 89,
    "temperature_shutdown": 94,
    "power_limit": 700.0,
    "power_limit_min": 200.0,
    "power_limit_max": 700.0,
    "clock_memory": 2619,
    "clock_sm_max": 1980,
    "clock_memory_max": 2619,
    "clock_graphics_max": 1980,
    "clock_video_max": 1545,
    "pstate": 0,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "nvlink_active": 18,
    "nvlink_count": 18,
    "ecc_mode": True,
    "ecc_corrected_volatile": 0,
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_aggregate": 0,
    "ecc_uncorrected_aggregate": 0,
    "remapped_rows_correctable": 0,
    "remapped_rows_uncorrectable": 0,
    "remapped_rows_pending": False,
    "remapped_rows_failure": False,
    "recovery_action": "None",
    "persistence_mode": True,
    "compute_mode": "Default",
    "display_mode": False,
    "display_active": False,
    "mig_mode": False,
    # An SXM card is cooled by the chassis, and replaces rows where older cards retired pages.
    "unknown": dict.fromkeys(
        (
            "fan_speed",
            "fan_speeds",
            "retired_pages_single_bit",
            "retired_pages_double_bit",
            "retired_pages_pending",
        ),
        Unknown.NOT_SUPPORTED,
    ),
}
_KEPT_WHEN_LOST = (
    "name",
    "pci_bus_id",
    "minor_number",
    "architecture",
    "compute_capability",
    "vbios_version",
    "serial",
)


class _Card(Struct, frozen=True):
    """One of the eight.

    Attributes:
        index: Its index.
        uuid: Its UUID.
        fixed: The fields of ``Gpu`` that never change while it answers.
        busy: How much of the time a kernel runs, 0 to 1.
        heat: Watts above those of an idle card.
        decoder: How much of the video decoder is used, 0 to 1.
        cool: Degrees Celsius when idle.
        nvlink: Bytes per second over NVLink when busy all the time.
        joules: On the energy counter when the demo began.
    """

    index: int
    uuid: str
    fixed: dict[str, Any]
    busy: Area
    heat: Area
    decoder: Area
    cool: float
    nvlink: float
    joules: float


class _Share(Struct, frozen=True):
    """What a job has of one card.

    Attributes:
        card: Index of the card.
        gib: GPU memory when it starts.
        part: Which part of the card's utilisation is its own.
        decodes: Whether the card's video decoder works for it.
    """

    card: int
    gib: float
    part: float = 0.0
    decodes: bool = False


class _Runs(Struct, frozen=True):
    """When something is there: once, or again and again for ever, before ``started`` too.

    Attributes:
        started: When a run starts, in seconds after the demo's start.
        lasts: How long a run takes, in seconds.
        every: Seconds from the start of a run to that of the next; infinite where there is one.
    """

    started: float
    lasts: float = math.inf
    every: float = math.inf


class _Job(Struct, frozen=True):
    """A process of the story, or one that comes back again and again under a new number.

    Attributes:
        pid: Its number; each further run has a higher one.
        user: Whose it is.
        uid: The owner's number.
        command: Its command line.
        shares: What it has on which cards.
        runs: When it is there.
        cpu: Percent of a core while its first card is half busy.
        rss_gib: Resident host memory.
        gib_per_hour: How fast its GPU memory grows on each card.
        type: C, G or M.
    """

    pid: int
    user: str
    uid: int
    command: str
    shares: tuple[_Share, ...]
    runs: _Runs
    cpu: float = 0.0
    rss_gib: float = 1.0
    gib_per_hour: float = 0.0
    type: str = "C"


_VISITS = _Runs(started=75.0, lasts=4 * _MINUTE, every=13 * _MINUTE)
_TRANSCRIPTIONS = _Runs(started=-40.0, lasts=2 * _MINUTE, every=5 * _MINUTE)

_JOBS = (
    _Job(
        pid=51022,
        user="ann",
        uid=1004,
        command="python train.py --config configs/llama_70b.yaml --lr 3e-4",
        shares=(_Share(0, 47.9, 0.78), _Share(1, 47.9, 0.70)),
        runs=_Runs(-(1 * _HOUR + 12 * _MINUTE + 9)),
        cpu=392.0,
        rss_gib=31.0,
    ),
    *(
        _Job(
            pid=51090 + rank,
            user="ann",
            uid=1004,
            command=f"python -m datatools.augment_worker --device cuda:{rank} --shards 64",
            shares=(_Share(rank, 0.6, 0.06),),
            runs=_Runs(-(1 * _HOUR + 11 * _MINUTE + 48)),
            cpu=64.0,
            rss_gib=5.3,
        )
        for rank in (0, 1)
    ),
    *(
        _Job(
            pid=47318 + rank,
            user="dara",
            uid=1011,
            command="/home/dara/envs/eval/bin/python -u eval.py --suite mmlu,gsm8k --dtype bf16",
            shares=(_Share(rank, 9.4, 0.16 + 0.08 * rank),),
            runs=_Runs(-(5 * _HOUR + 41 * _MINUTE + 2)),
            cpu=103.0,
            rss_gib=12.4,
        )
        for rank in (0, 1)
    ),
    _Job(
        pid=38470,
        user="erin",
        uid=1013,
        command="python -u pretrain.py --arch vit_h --data /data/laion --batch-size 384 --compile",
        shares=(_Share(2, 76.4, 0.99),),
        runs=_Runs(-(1 * _DAY + 7 * _HOUR + 33 * _MINUTE)),
        cpu=580.0,
        rss_gib=44.7,
    ),
    _Job(
        pid=38991,
        user="erin",
        uid=1013,
        command="python -m tools.log_activations --run vit_h_17 --every 500",
        shares=(_Share(2, 0.5, 0.01),),
        runs=_Runs(-(1 * _DAY + 7 * _HOUR + 30 * _MINUTE)),
        cpu=4.0,
        rss_gib=2.2,
    ),
    _Job(
        pid=20991,
        user="bo",
        uid=1006,
        command=(
            "/usr/bin/python3 -m ipykernel_launcher "
            "-f /home/bo/.local/share/jupyter/runtime/kernel-8a2f.json"
        ),
        shares=(_Share(3, 43.4, 1.0),),
        runs=_Runs(-(3 * _DAY + 4 * _HOUR + 12 * _MINUTE)),
        rss_gib=1.2,
    ),
    _Job(
        pid=23377,
        user="bo",
        uid=1006,
        command=(
            "/usr/bin/python3 -m ipykernel_launcher "
            "-f /home/bo/.local/share/jupyter/runtime/kernel-c01d.json"
        ),
        shares=(_Share(3, 0.4),),
        runs=_Runs(-(2 * _DAY + 22 * _HOUR)),
        rss_gib=0.6,
    ),
    _Job(
        pid=80112,
        user="hugo",
        uid=1021,
        command="python bench_attention.py --seqlen 8192 --heads 32 --iters 2000",
        shares=(_Share(4, 18.3, 1.0),),
        cpu=108.0,
        rss_gib=3.4,
        runs=_VISITS,
    ),
    _Job(
        pid=41233,
        user="chen",
        uid=1009,
        command="python train.py --config big.yaml --resume runs/big/ckpt_0118000.pt",
        shares=(_Share(5, 73.8, 1.0),),
        runs=_Runs(-(2 * _HOUR + 14 * _MINUTE)),
        cpu=101.0,
        rss_gib=9.1,
    ),
    _Job(
        pid=41240,
        user="chen",
        uid=1009,
        command="python -m torch.utils.metrics_server --port 6007",
        shares=(_Share(5, 0.4),),
        runs=_Runs(-(2 * _HOUR + 13 * _MINUTE)),
        rss_gib=0.9,
    ),
    _Job(
        pid=36604,
        user="finn",
        uid=1015,
        command="python sweep.py --trial 42 --model resnext101",
        shares=(_Share(_LOST_CARD, 51.7, 1.0),),
        runs=_Runs(-9 * _HOUR, lasts=9 * _HOUR + _CARD_LOST),
        cpu=210.0,
        rss_gib=14.8,
    ),
    _Job(
        pid=9120,
        user="svc-llm",
        uid=988,
        command=(
            "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-14B-Instruct-AWQ "
            "--gpu-memory-utilization 0.30 --max-model-len 16384 --port 8000"
        ),
        shares=(_Share(7, 23.9, 0.72),),
        runs=_Runs(-(12 * _DAY + 2 * _HOUR)),
        cpu=118.0,
        rss_gib=8.6,
    ),
    _Job(
        pid=9377,
        user="svc-llm",
        uid=988,
        command="text-embeddings-router --model-id BAAI/bge-m3 --port 8081",
        shares=(_Share(7, 2.1, 0.1),),
        runs=_Runs(-(12 * _DAY + 1 * _HOUR)),
        cpu=22.0,
        rss_gib=1.7,
    ),
    _Job(
        pid=61544,
        user="finn",
        uid=1015,
        command="python collect_rollouts.py --env humanoid --workers 48",
        shares=(_Share(7, 2.6, 0.14),),
        runs=_Runs(-1.8 * _HOUR, lasts=5 * _HOUR, every=5 * _HOUR + 40),
        cpu=140.0,
        rss_gib=6.5,
        gib_per_hour=2.4,
    ),
    *(
        _Job(
            pid=55310 + 3 * client,
            user="gina",
            uid=1018,
            command=f"./lattice --replica {client} --steps 40000000",
            shares=(_Share(7, 0.4, 0.01),),
            runs=_Runs(-(17 * _HOUR + 40 * _MINUTE + client)),
            cpu=99.0,
            rss_gib=0.3,
            type="M",
        )
        for client in range(3)
    ),
    _Job(
        pid=82907,
        user="dara",
        uid=1011,
        command="whisper-batch --model large-v3 --input /data/calls/today --fp16",
        shares=(_Share(7, 4.7, 0.01, decodes=True),),
        cpu=88.0,
        rss_gib=4.1,
        runs=_TRANSCRIPTIONS,
    ),
)


class DemoSource:
    """The demo as a ``gpumon.sources.Source``."""

    def __init__(
        self, seed: int = 1, clock: Clock | None = None, selection: GpuSelection = ALL
    ) -> None:
        """Begin the story now.

        Args:
            seed: Chooses the machine: names of its cards, and when what rises and falls.
            clock: Where the time comes from; the machine's own by default.
            selection: Which of the cards are looked at, and what processes have on them.
        """
        self._clock = clock or SystemClock()
        self._start = self._clock.time()
        random = Random(seed)  # noqa: S311 - a story is told here, no secret is made
        self._cards = _cards(random)
        self._shown = [c for c in self._cards if selection.includes(c.index, c.uuid)]
        self._jobs = _jobs_on({card.index for card in self._shown})
        self._cpu_busy = together(
            steady(0.41), ripples(*_noise(random, 0.06), (0.05, 97.0, random.random()))
        )
        self._read: tuple[float, tuple[GpuProcess, ...]] | None = None
        self._lost = _lost_fields(self._cards[_LOST_CARD], self._start + _CARD_LOST)

    def open(self) -> None:
        """Nothing to make ready; there may be nothing to show.

        Raises:
            SourceError: When none of its cards was chosen.
        """
        if not self._shown:
            raise SourceError("None of the chosen cards is there.", "The demo has cards 0 to 7.")

    def close(self) -> None:
        """Nothing to give back."""

    @property
    def current_call(self) -> Call | None:
        """Always ``None``: no driver is asked."""
        return None

    @property
    def driver_seconds(self) -> float:
        """Always 0: no driver is asked."""
        return 0.0

    def sample(self) -> Snapshot:
        """The machine as it is now."""
        return self._at(self._clock.time())

    def past(self) -> Iterator[Snapshot]:
        """The four hours before the demo began, coarsely at first, by the second at the end.

        To be fed to the history before the first sample, so that graphs are filled and what is
        said of the past has been seen.
        """
        ends = (*(before for before, _ in _PAST_STEPS[1:]), 0.0)
        for (before, step), end in zip(_PAST_STEPS, ends, strict=True):
            for number in range(round((before - end) / step)):
                yield self._at(self._start - before + number * step)

    def _at(self, time: float) -> Snapshot:
        # Process lists have a slower pace than the cards, as they have with a real driver.
        processes_at = float(math.floor(time))
        # Remembered for the samples that follow in the same second; it could as well be made anew.
        if self._read is None or self._read[0] != processes_at:
            self._read = processes_at, self._processes(processes_at)
        processes = self._read[1]
        used = [_DRIVER_CLIENTS] * _CARDS
        used[_ORPHANED_CARD] += _ORPHANED
        for process in processes:
            for use in process.uses:
                used[use.gpu_index] += use.memory_used or 0
        return Snapshot(
            time=time,
            host=self._host(time),
            gpus=tuple([self._gpu(card, time, used[card.index]) for card in self._shown]),
            processes=processes,
            processes_at=processes_at,
            source="demo",
        )

    def _host(self, time: float) -> Host:
        now = time - self._start
        busy = self._cpu_busy
        return Host(
            name="ada-07",
            driver_version="570.124.06",
            nvml_version="12.570.124.06",
            cuda_version="12.8",
            driver_since=self._start - _PAST,
            cpu_percent=round(100 * mean(busy, now, 1.0), 1),
            cpu_count=96,
            load=(
                round(93 * mean(busy, now, 60.0), 2),
                round(93 * mean(busy, now, 300.0), 2),
                round(93 * mean(busy, now, 900.0), 2),
            ),
            memory_total=1008 * _GIB,
            memory_used=int((205 + 17 * mean(busy, now, 20.0)) * _GIB),
        )

    def _processes(self, time: float) -> tuple[GpuProcess, ...]:
        now = time - self._start
        utilizations = [_utilization(card, now) for card in self._cards]
        found = []
        for job in self._jobs:
            runs = job.runs
            if runs.every == math.inf:
                run, begun = 0, runs.started
            else:
                run = math.floor((now - runs.started) / runs.every)
                begun = runs.started + run * runs.every
            if 0 <= now - begun < runs.lasts:
                found.append(self._process(job, run, begun, now - begun, utilizations))
        return tuple(found)

    def _process(
        self, job: _Job, run: int, begun: float, age: float, utilizations: list[int]
    ) -> GpuProcess:
        # Allocators take memory from the driver in large blocks.
        grown = int(job.gib_per_hour * age / _HOUR * 8) * (_GIB // 8)
        uses = []
        for share in job.shares:
            sm = round(share.part * utilizations[share.card])
            card = self._cards[share.card]
            decoder = _decoding(card, begun + age) if share.decodes else 0
            uses.append(
                GpuUse(
                    gpu_uuid=card.uuid,
                    gpu_index=share.card,
                    memory_used=int(share.gib * 512) * 2 * _MIB + grown,
                    sm=sm,
                    memory_activity=_memory_activity(sm),
                    encoder=0,
                    decoder=decoder,
                )
            )
        busy = utilizations[job.shares[0].card] / 100
        command = tuple(job.command.split())
        return GpuProcess(
            id=ProcessId(job.pid + 7 * run, int((begun - _MACHINE_BOOT) * 100)),
            type=job.type,
            uses=tuple(uses),
            user=job.user,
            uid=job.uid,
            name=command[0].rpartition("/")[2][:15],
            command=command,
            state="R" if job.cpu >= 50 else "S",
            cpu_percent=round(job.cpu * (0.8 + 0.4 * busy), 1),
            rss=int(job.rss_gib * _GIB),
            started_at=self._start + begun,
        )

    def _gpu(self, card: _Card, time: float, used: int) -> Gpu:
        now = time - self._start
        if card.index == _LOST_CARD and now >= _CARD_LOST:
            return Gpu(index=card.index, uuid=card.uuid, **self._lost)
        utilization = _utilization(card, now)
        heat = card.heat(now)
        watts = round(_IDLE_WATTS + heat - card.heat(now - 1.0), 2)
        temperature = _temperature(card, now, heat)
        slowed = card.index == _HOT_CARD and now >= _THERMAL_SLOWDOWN
        clock = _sm_clock(utilization, watts, slowed)
        traffic = utilization / 100
        return Gpu(
            index=card.index,
            uuid=card.uuid,
            status_since=self._start - _PAST,
            sampled_at=time,
            memory_used=used,
            memory_free=_MEMORY_TOTAL - _MEMORY_RESERVED - used,
            bar1_used=(4 + 2 * (used > _GIB)) * _MIB,
            utilization_gpu=utilization,
            utilization_memory=_memory_activity(utilization),
            utilization_decoder=_decoding(card, now),
            temperature_gpu=temperature,
            temperature_memory=temperature + 4 + utilization // 12,
            temperature_margin=_TEMPERATURE_TARGET - temperature,
            power_draw=watts,
            power_instant=round(_IDLE_WATTS + (heat - card.heat(now - 0.02)) / 0.02, 2),
            power_average=watts,
            energy=round(card.joules + _IDLE_WATTS * now + heat, 3),
            clock_sm=clock,
            clock_graphics=clock,
            clock_video=min(1545, clock),
            clock_event_reasons=_event_reasons(utilization, watts, slowed),
            pcie_rx=2e5 + 3.1e9 * traffic,
            pcie_tx=1e5 + 0.9e9 * traffic,
            nvlink_rx=card.nvlink * traffic,
            nvlink_tx=card.nvlink * 0.97 * traffic,
            **card.fixed,
        )


def _jobs_on(cards: Container[int]) -> list[_Job]:
    """The jobs with a share of some of these cards, and no other share."""
    jobs = []
    for job in _JOBS:
        shares = tuple(share for share in job.shares if share.card in cards)
        if shares:
            jobs.append(structs.replace(job, shares=shares))
    return jobs


def _clip(share: float) -> float:
    return min(1.0, max(0.0, share))


def _utilization(card: _Card, now: float) -> int:
    """Percent; the driver makes a new reading a few times a second and repeats it until then."""
    return round(100 * _clip(mean(card.busy, math.floor(now * 4) / 4, 0.5)))


def _decoding(card: _Card, now: float) -> int:
    """Percent of the video decoder."""
    return round(100 * _clip(mean(card.decoder, now, 1.0)))


def _memory_activity(utilization: int) -> int:
    """Percent of time the memory is read or written while kernels run that often."""
    return round(0.62 * utilization)


def _temperature(card: _Card, now: float, heat: float) -> int:
    """The chip follows the power within seconds, what it is mounted on within minutes."""
    lately = (heat - card.heat(now - 15.0)) / 15.0
    watts = (lately + (heat - card.heat(now - 150.0)) / 150.0) / 2
    fever = 0.0
    if card.index == _HOT_CARD:
        fever = 9.0 * _clip((now - _COOLING_WORSE) / (_THERMAL_SLOWDOWN - _COOLING_WORSE))
    return round(card.cool + 0.082 * watts + fever)


def _sm_clock(utilization: int, watts: float, slowed: bool) -> int:
    """MHz, in the steps of 15 the card can take."""
    if utilization == 0:
        return 345
    wanted = 1980 - 0.9 * max(0.0, watts - 450) - (345 if slowed else 0)
    return 15 * round(wanted / 15)


def _event_reasons(utilization: int, watts: float, slowed: bool) -> int:
    """Bits of ``metrics.CLOCK_EVENT_REASONS``."""
    if utilization == 0:
        return 0x1
    return (0x4 if watts > 615 else 0) | (0x20 if slowed else 0)


def _lost_fields(card: _Card, since: float) -> dict[str, Any]:
    """What is left to say of a card that fell off the bus."""
    known = {field: card.fixed[field] for field in _KEPT_WHEN_LOST}
    known |= {"xid": 79, "xid_at": since}
    gone = [m.field for m in GPU_METRICS if m.field not in {*known, "index", "uuid"}]
    return {
        "status": CardStatus.LOST,
        "status_since": since,
        "sampled_at": since,
        "unknown": dict.fromkeys((*gone, "fan_speeds"), Unknown.CARD_LOST),
        **known,
    }


def _noise(random: Random, amplitude: float) -> list[tuple[float, float, float]]:
    """Ripples that together are restless around 0, seldom further from it than ``amplitude``."""
    return [
        (amplitude * part, period * random.uniform(0.9, 1.1), random.random())
        for part, period in ((0.45, 1.7), (0.35, 5.3), (0.3, 17.0))
    ]


def _training(random: Random, level: float, phase: float) -> Area:
    """Epochs of four minutes: a steady run, then a dip for the checkpoint."""
    high = level * 1.08
    # Even with all ripples at their lowest a pause stays above nothing.
    low = 0.3 * level
    epoch = [(0, 0.3), (9, high), (70, level), (130, high), (226, level), (230, low), (240, 0.3)]
    # Steps take longer and shorter as the lengths of the sequences vary.
    swell = (0.12 * level, 31.0 * random.uniform(0.9, 1.1), random.random())
    return together(wave(epoch, phase), ripples(swell, *_noise(random, 0.14 * level)))


def _nearly_full(random: Random) -> Area:
    """A job that seldom waits."""
    return together(steady(0.965), ripples(*_noise(random, 0.02)))


def _serving(random: Random) -> Area:
    """Requests come in bursts."""
    bursts = [
        wave([(0, 0), (0.4, height), (width, height), (width + 0.6, 0), (period, 0)], phase)
        for height, width, period, phase in (
            (0.22, 2.5, 7.3 * random.uniform(0.9, 1.1), random.random()),
            (0.31, 4.0, 23.9 * random.uniform(0.9, 1.1), random.random()),
            (0.28, 9.0, 71.0 * random.uniform(0.9, 1.1), random.random()),
        )
    ]
    return together(steady(0.02), *bursts)


def _recurring(level: float, runs: _Runs) -> Area:
    """Work that begins a breath after its process came, and ends before that goes."""
    end = runs.lasts - 4
    points = [(0, 0), (6, 0), (9, level), (end - 1, level), (end, 0), (runs.every, 0)]
    return wave(points, phase=-runs.started / runs.every)


def _cards(random: Random) -> tuple[_Card, ...]:
    """The eight cards, each with its part in the story."""
    phase = random.random()
    idle = steady(0.0)
    rushing = _nearly_full(random)
    notebook = wave([(0, 0), (40, 0), (42, 0.7), (95, 0.6), (96, 0), (300, 0)], random.random())
    busy = (
        _training(random, 0.50, phase),
        _training(random, 0.27, phase + 0.01),
        _nearly_full(random),
        switch(_NOTEBOOK_LEFT, notebook, idle),
        _recurring(0.93, _VISITS),
        switch(_JOB_STUCK, rushing, steady(1.0)),
        _nearly_full(random),
        _serving(random),
    )
    full_watts = (572.0, 530.0, 577.0, 420.0, 540.0, 0.0, 560.0, 590.0)
    heat = [scaled(area, watts) for area, watts in zip(busy, full_watts, strict=True)]
    # It spins in a kernel that waits for another rank: always busy, and doing nothing.
    heat[5] = switch(_JOB_STUCK, scaled(rushing, 565.0), steady(50.0))
    decoding = _recurring(0.38, _TRANSCRIPTIONS)
    return tuple(
        _Card(
            index=index,
            uuid=_uuid(random),
            fixed={
                **_STATIC,
                "pci_bus_id": f"00000000:{_PCI_BUSES[index]}:00.0",
                "minor_number": index,
                "serial": f"165{random.randrange(10**10):010d}",
            },
            busy=busy[index],
            heat=heat[index],
            decoder=decoding if index == _ORPHANED_CARD else idle,
            cool=random.uniform(29.5, 32.5) if index != _HOT_CARD else 31.0,
            nvlink=85e9 if index < 2 else 0.0,
            joules=random.uniform(180, 420) * -_MACHINE_BOOT,
        )
        for index in range(_CARDS)
    )


def _uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    return "GPU-" + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
