"""The scenario of the demo: its times, its users, and the processes that use GPUs.

Times are in seconds after the demo's start, so most are negative. Processes without work on a GPU,
from shells to data loaders, are in ``background.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations at run time
from typing import Any

from msgspec import Struct, structs

from gpumon.model.processes import Workload
from gpumon.model.serving import InferenceServer

GIB = 2**30

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0

PAST = 4 * HOUR
"""Length of the simulated history before the demo's start."""
GPU_LOST = -5.5 * MINUTE
JOB_STUCK = -22 * MINUTE
MACHINE_BOOT = -41 * DAY

LOST_GPU, LOST_PID = 6, 36604
"""The GPU that falls off the bus, and the process whose work that ends."""
STRAY_GPU = 7
"""The GPU with memory that no process accounts for."""

ME = "ann"
"""The user who runs gpumon on the simulated machine."""
UIDS = {
    "root": 0,
    "svc-llm": 988,
    "ann": 1004,
    "bo": 1006,
    "chen": 1009,
    "dara": 1011,
    "erin": 1013,
    "finn": 1015,
    "gina": 1018,
    "hugo": 1021,
}


class Share(Struct, frozen=True):
    """The use that a process makes of one GPU."""

    gpu: int  # Index of the GPU.
    gib: float  # GPU memory at its start.
    part: float = 0.0  # Its share of the GPU's utilization.
    decodes: bool = False  # Whether it uses the video decoder.


class RequestLoad(Struct, frozen=True):
    """The requests of an inference server, which follow the utilization of its first GPU."""

    at_once: float  # Number of requests that it works on at full utilization.
    tokens: float  # Tokens that it generates a second at full utilization.
    has_kv_cache: bool = True  # Whether it reports the use of its KV cache.
    until: float = math.inf  # When its last request ended, in seconds after the demo's start.


class Runs(Struct, frozen=True):
    """The runs of an actor: one, or repeated for ever, also before ``started``."""

    started: float  # When a run starts, in seconds after the demo's start.
    lasts: float = math.inf  # Duration of a run in seconds.
    # Seconds from the start of a run to that of the next; infinite for a single run.
    every: float = math.inf

    def run_at(self, now: float) -> int:
        """The number of the run at a time: 0 is the first, also of those that come back."""
        return 0 if self.every == math.inf else math.floor((now - self.started) / self.every)

    def start_of(self, run: int) -> float:
        """When a run starts."""
        return self.started + run * self.every if run else self.started


class Actor(Struct, frozen=True):
    """A process of the scenario, or one that runs repeatedly with a new PID each time."""

    pid: int  # Its PID; each further run has a higher one.
    parent: int  # PID of the process that started it.
    user: str  # Its owner.
    command: str  # Its command line.
    runs: Runs  # When it runs.
    shares: tuple[Share, ...] = ()  # Its use of GPUs.
    type: str = "C"  # C, G or M.
    cpu: float = 0.0  # Percent of a core while its first GPU is half busy.
    rss_gib: float = 0.01  # Resident host memory.
    gib_per_hour: float = 0.0  # Growth of its GPU memory on each GPU.
    name: str | None = None  # The kernel's short name of it, if not that of its program.
    threads: int = 1  # Number of threads.
    leads: bool = False  # Whether it leads a session of its own.
    # What starts with it, also for its children: a container, Slurm step or tmux session.
    where: Workload = Workload()
    executable: str | None = None  # Path of its program, if not ``/usr/bin`` with its name.
    cwd: str | None = None  # Its working directory, if not that of its parent.
    environment: Mapping[str, str] = {}  # What it adds to the environment of its parent.
    # GPUs whose device file it holds although the driver does not list it there.
    inherited: tuple[int, ...] = ()
    # Memory of the first of those GPUs that it holds after its parent ended.
    keeps_gib: float = 0.0
    requests: RequestLoad | None = None  # As an inference server, or as an engine of it.
    stubborn: bool = False  # Whether only SIGKILL ends it, and not the end of its parent.


class DemoMachine(Struct, frozen=True):
    """What distinguishes one simulated machine from another."""

    name: str = "ada-07"  # Its host name.
    empty: frozenset[int] = frozenset()  # Indices of the GPUs that only recurring processes use.
    sound: bool = False  # Whether none of its GPUs is lost or hot.
    rank: int = 2  # Its place among the nodes of the job that has several.
    lags: bool = False  # Whether that job's training has ended on it, so that the others wait.


class SlurmJob(Struct, frozen=True):
    """A job of Slurm, or an interactive one that its user asks for again and again."""

    number: int  # Its job id, that of all runs.
    user: str
    gpus: tuple[int, ...]  # Indices of the GPUs that it has.
    runs: Runs
    limit: float  # Its time limit in seconds.
    nodes: str  # All its machines.
    # PID of the process without which it ends; ``None`` of an interactive one.
    script: int | None = None


VISITS = Runs(started=75.0, lasts=4 * MINUTE, every=13 * MINUTE)
_SESSIONS = Runs(started=60.0, lasts=9 * MINUTE, every=13 * MINUTE)
"""They begin before the visits, and last when these are over: then their GPU is unused."""
TRANSCRIPTIONS = Runs(started=-40.0, lasts=2 * MINUTE, every=5 * MINUTE)


_LLAMA = "/home/ann/miniconda3/envs/llama"
_EXPLORE = "/home/ann/miniconda3/envs/explore"
_NOTEBOOK = "/home/ann/notebooks/attention-maps.ipynb"


def _conda(prefix: str) -> dict[str, str]:
    """What an active conda environment adds to the environment of a process."""
    return {"CONDA_DEFAULT_ENV": prefix.rpartition("/")[2], "CONDA_PREFIX": prefix}


def _kernel(
    pid: int,
    parent: int,
    user: str,
    kernel: str,
    python: str = "/usr/bin/python3",
    *,
    where: Workload | None = None,
    **more: Any,
) -> Actor:
    """A Jupyter kernel."""
    file = f"/home/{user}/.local/share/jupyter/runtime/kernel-{kernel}.json"
    command = f"{python} -m ipykernel_launcher -f {file}"
    place = structs.replace(where or Workload(), jupyter_kernel=kernel)
    return Actor(pid, parent, user, command, leads=True, where=place, **more)


LEADS = (
    Actor(
        pid=51022,
        parent=50720,
        user="ann",
        command=(
            "python /home/ann/llama/train.py --config configs/llama_70b.yaml --lr 3e-4 --mesh 2x1 "
            "--global-batch 256 --remat full --data /data/c4/en --loader-workers 7 "
            "--checkpoint-every 500 --run llama70b-lr3e-4"
        ),
        runs=Runs(-(1 * HOUR + 12 * MINUTE + 9)),
        shares=(Share(0, 47.9, 0.78), Share(1, 47.9, 0.12)),
        cpu=392.0,
        rss_gib=31.0,
        threads=214,
        where=Workload(environment="llama"),
        executable=f"{_LLAMA}/bin/python3.11",
        cwd="/home/ann/llama",
        environment={
            **_conda(_LLAMA),
            "PATH": f"{_LLAMA}/bin:/usr/local/bin:/usr/bin:/bin",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": "0,1",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "true",
            "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.60",
            "WANDB_PROJECT": "llama70b",
            "WANDB_API_KEY": "not-a-key-only-a-demo",
        },
    ),
    Actor(
        pid=51090,
        parent=50988,
        user="ann",
        command=(
            "python -m datatools.augment_worker --device cuda:0 --shards 64 --input /data/c4/en "
            "--output /data/c4/en-augmented --policy configs/augment/strong.yaml"
        ),
        runs=Runs(-(1 * HOUR + 11 * MINUTE + 48)),
        shares=(Share(0, 0.6, 0.06),),
        cpu=64.0,
        rss_gib=5.3,
        threads=38,
        leads=True,
        executable="/opt/conda/bin/python3.11",
        cwd="/work",
        environment={
            "HOME": "/home/ann",
            "PATH": "/opt/conda/bin:/usr/local/bin:/usr/bin:/bin",
            "HOSTNAME": "c1f0a97be2d4",
            "NVIDIA_VISIBLE_DEVICES": "0",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "HF_TOKEN": "not-a-token-only-a-demo",
        },
    ),
    _kernel(
        58204,
        57990,
        "ann",
        "4be07d52-91c3-4f7e-b1d8-6a90c2e35f17",
        f"{_EXPLORE}/bin/python",
        runs=Runs(-(47 * MINUTE + 20)),
        shares=(Share(1, 6.1),),
        rss_gib=2.8,
        threads=21,
        where=Workload(environment="explore", notebook=_NOTEBOOK),
        executable=f"{_EXPLORE}/bin/python3.11",
        environment={
            **_conda(_EXPLORE),
            "CUDA_VISIBLE_DEVICES": "1",
            "JPY_PARENT_PID": "57990",
            "JPY_SESSION_NAME": _NOTEBOOK,
        },
    ),
    *(
        Actor(
            pid=47318 + rank,
            parent=47302,
            user="dara",
            command=(
                "/home/dara/envs/eval/bin/python -u /home/dara/lm-eval/eval.py "
                "--suite mmlu,gsm8k,humaneval --model /data/models/olmo-7b-instruct --dtype bf16 "
                "--batch-size 1 --out results/olmo-7b"
            ),
            runs=Runs(-(5 * HOUR + 41 * MINUTE + 2)),
            # Small batches that leave nearly all of the SMs without work.
            shares=(Share(rank, 9.4, (0.16, 0.87)[rank]),),
            cpu=103.0,
            rss_gib=12.4,
            threads=96,
        )
        for rank in (0, 1)
    ),
    Actor(
        pid=38470,
        parent=38440,
        user="erin",
        command=(
            "/home/erin/.conda/envs/vit/bin/python -u /home/erin/vit/pretrain.py --arch vit_h "
            "--data /data/laion --batch-size 384 --compile --amp bf16 --run vit_h_17"
        ),
        runs=Runs(-(1 * DAY + 7 * HOUR + 33 * MINUTE)),
        shares=(Share(2, 76.4, 0.99),),
        cpu=580.0,
        rss_gib=44.7,
        threads=188,
        where=Workload(environment="vit"),
    ),
    Actor(
        pid=38991,
        parent=38440,
        user="erin",
        command=(
            "/home/erin/.conda/envs/vit/bin/python -m tools.log_activations --run vit_h_17 "
            "--every 500"
        ),
        runs=Runs(-(1 * DAY + 7 * HOUR + 30 * MINUTE)),
        shares=(Share(2, 0.5, 0.01),),
        cpu=4.0,
        rss_gib=2.2,
        threads=17,
        where=Workload(environment="vit"),
    ),
    _kernel(
        20991,
        20440,
        "bo",
        "8a2f3c1e-5b7d-4e0a-9c66-2f1d7b90a4e8",
        runs=Runs(-(3 * DAY + 4 * HOUR + 12 * MINUTE)),
        shares=(Share(3, 43.4, 1.0),),
        rss_gib=1.2,
        threads=29,
    ),
    # Nobody has asked it anything since its user left.
    Actor(
        pid=23377,
        parent=20440,
        user="bo",
        command=(
            "llama-server -m /home/bo/models/qwen2.5-7b-instruct-q8_0.gguf -ngl 99 -c 8192 "
            "--port 8080 --metrics"
        ),
        runs=Runs(-(2 * DAY + 22 * HOUR)),
        shares=(Share(3, 8.6),),
        rss_gib=0.6,
        threads=19,
        leads=True,
        where=Workload(
            server=InferenceServer("llama.cpp", "/home/bo/models/qwen2.5-7b-instruct-q8_0.gguf")
        ),
        requests=RequestLoad(
            at_once=1.0, tokens=70.0, has_kv_cache=False, until=-(3 * HOUR + 8 * MINUTE)
        ),
    ),
    Actor(
        pid=80112,
        parent=79011,
        user="hugo",
        command="python bench_attention.py --seqlen 8192 --heads 32 --iters 2000",
        runs=VISITS,
        shares=(Share(4, 18.3, 1.0),),
        cpu=108.0,
        rss_gib=3.4,
        threads=14,
        where=Workload(slurm_job="88131", slurm_step="interactive"),
    ),
    Actor(
        pid=41233,
        parent=41215,
        user="chen",
        command=(
            "python train.py --config big.yaml --resume runs/big/ckpt_0118000.pt --nodes 4 "
            "--node-rank {rank} --master ada-05:29500"
        ),
        runs=Runs(-(2 * HOUR + 14 * MINUTE)),
        shares=(Share(5, 73.8, 1.0),),
        cpu=101.0,
        rss_gib=9.1,
        threads=72,
    ),
    Actor(
        pid=41240,
        parent=41215,
        user="chen",
        command="python -m torch.utils.metrics_server --port 6007",
        runs=Runs(-(2 * HOUR + 13 * MINUTE)),
        shares=(Share(5, 0.4),),
        rss_gib=0.9,
        threads=9,
    ),
    Actor(
        pid=LOST_PID,
        parent=36120,
        user="finn",
        command="python sweep.py --trial 42 --model resnext101",
        runs=Runs(-9 * HOUR, lasts=9 * HOUR + GPU_LOST),
        shares=(Share(LOST_GPU, 51.7, 1.0),),
        cpu=210.0,
        rss_gib=14.8,
        threads=61,
    ),
    Actor(
        pid=9188,
        parent=9120,
        user="svc-llm",
        command="VLLM::EngineCore",
        runs=Runs(-(12 * DAY + 2 * HOUR - 14)),
        shares=(Share(STRAY_GPU, 23.9, 0.60),),
        cpu=118.0,
        rss_gib=8.6,
        threads=143,
        requests=RequestLoad(at_once=15.0, tokens=3000.0),
    ),
    Actor(
        pid=9377,
        parent=9340,
        user="svc-llm",
        command="text-embeddings-router --model-id BAAI/bge-m3 --port 8081",
        runs=Runs(-(12 * DAY + 1 * HOUR)),
        shares=(Share(STRAY_GPU, 2.1, 0.1),),
        cpu=22.0,
        rss_gib=1.7,
        threads=67,
        leads=True,
    ),
    Actor(
        pid=61544,
        parent=36110,
        user="finn",
        command=(
            "/home/finn/miniconda3/envs/humanoid/bin/python collect_rollouts.py --env humanoid "
            "--workers 48 --horizon 1000 --replay-size 4000000"
        ),
        runs=Runs(-1.8 * HOUR, lasts=5 * HOUR, every=5 * HOUR + 40),
        shares=(Share(STRAY_GPU, 2.6, 0.14),),
        cpu=140.0,
        rss_gib=6.5,
        gib_per_hour=2.4,
        threads=55,
        where=Workload(environment="humanoid"),
    ),
    *(
        Actor(
            pid=55310 + 3 * client,
            parent=55290,
            user="gina",
            command=f"./lattice --replica {client} --steps 40000000",
            runs=Runs(-(17 * HOUR + 40 * MINUTE + client)),
            shares=(Share(STRAY_GPU, 0.4, 0.04),),
            type="M",
            cpu=99.0,
            rss_gib=0.3,
            threads=4,
        )
        for client in range(3)
    ),
    Actor(
        pid=82907,
        parent=30210,
        user="dara",
        command="whisper-batch --model large-v3 --input /data/calls/today --fp16",
        runs=TRANSCRIPTIONS,
        shares=(Share(STRAY_GPU, 4.7, 0.04, decodes=True),),
        cpu=88.0,
        rss_gib=4.1,
        threads=24,
    ),
    # It ended long ago; one of its data loaders still runs.
    Actor(
        pid=44790,
        parent=48810,
        user="ann",
        command="python /home/ann/llama/train.py --config configs/llama_8b.yaml --lr 1e-3",
        runs=Runs(-3 * DAY, lasts=3 * DAY - 26.5 * HOUR),
        shares=(Share(STRAY_GPU, 31.0),),
        rss_gib=18.2,
        threads=120,
        executable=f"{_LLAMA}/bin/python3.11",
        cwd="/home/ann/llama",
    ),
)

NODES_JOB = SlurmJob(
    *(88123, "chen", (5,), Runs(-(2 * HOUR + 14 * MINUTE + 3)), 12 * HOUR, "ada-[05-08]"),
    script=41233,
)
"""A job on several machines, which wait for each other from ``JOB_STUCK`` on."""
JOBS = (
    SlurmJob(
        *(88117, "erin", (2,), Runs(-(1 * DAY + 7 * HOUR + 34 * MINUTE)), 2 * DAY, "ada-07"),
        script=38470,
    ),
    NODES_JOB,
    SlurmJob(88131, "hugo", (4,), _SESSIONS, 10 * MINUTE, "ada-07"),
)
"""What Slurm has given to jobs."""
