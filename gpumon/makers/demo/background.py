"""The demo's processes that do not compute: shells, services, launchers, data loaders."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from gpumon.makers.demo.scenario import DAY, HOUR, LEADS, MACHINE_BOOT, MINUTE, Actor, Runs
from gpumon.model.processes import Container, Workload
from gpumon.model.serving import InferenceServer

_BOOTED = Runs(MACHINE_BOOT + 9)
_HOME = {
    "SHELL": "/bin/bash",
    "USER": "ann",
    "LOGNAME": "ann",
    "HOME": "/home/ann",
    "LANG": "en_GB.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
}
_SHIM = "/usr/bin/containerd-shim-runc-v2 -namespace {} -id {} -address /run/containerd/c.sock"
_AUGMENT = "c1f0a97be2d48356f70b1e9d4ca82735e6f19b0d87c3a54210f6e8b9d7c3a5e1"
_VLLM = "5d20b7e3918a4fc6d0e1b29a7385fc4410be6d72c9a85f03e47b12d6908ca3ff"
_EMBEDDINGS = "9ae4410c7bd2385fe6a1907c4d5b82f3016ed79ca2845fb3e91d06c7a8b2f540"

_SERVICES = (
    Actor(1, 0, "root", "/sbin/init", Runs(MACHINE_BOOT), name="systemd", leads=True),
    Actor(1240, 1, "root", "sshd: /usr/sbin/sshd -D [listener]", _BOOTED, name="sshd", leads=True),
    Actor(1610, 1, "root", "/usr/sbin/slurmd -D", _BOOTED, threads=5, leads=True),
    Actor(1702, 1, "root", "/opt/hub/bin/jupyterhub -f /etc/hub.py", _BOOTED, leads=True),
)


def _ssh(pid: int, user: str, terminal: int, age: float = 6 * HOUR, **more: Any) -> Actor:
    """The end of a connection on this machine."""
    command = f"sshd: {user}@pts/{terminal}"
    return Actor(pid, 1240, user, command, Runs(-age), name="sshd", leads=True, **more)


def _bash(pid: int, parent: int, user: str, age: float) -> Actor:
    """A login shell."""
    return Actor(pid, parent, user, "-bash", Runs(-age), name="bash", leads=True)


def _tmux(pid: int, user: str, name: str, age: float, **more: Any) -> Actor:
    """The server of a tmux session."""
    return Actor(
        pid,
        1,
        user,
        f"tmux new-session -s {name}",
        Runs(-age),
        name="tmux: server",
        leads=True,
        where=Workload(tmux=name),
        **more,
    )


def _shim(pid: int, namespace: str, container: Container, age: float) -> Actor:
    """The parent of a container's first process."""
    return Actor(
        pid,
        1,
        "root",
        _SHIM.format(namespace, container.id),
        Runs(-age),
        name="containerd-shim",
        threads=11,
        leads=True,
        where=Workload(container=container),
    )


def _slurm_step(pid: int, job: str, step: str, age: float) -> Actor:
    """The parent of the processes of a Slurm step."""
    return Actor(
        pid,
        1610,
        "root",
        f"slurmstepd: [{job}.{step}]",
        Runs(-age),
        name="slurmstepd",
        threads=7,
        leads=True,
        where=Workload(slurm_job=job, slurm_step=step),
    )


_ANNS_OWN = (
    _ssh(
        50690,
        "ann",
        3,
        executable="/usr/sbin/sshd",
        environment=_HOME,
        cwd="/home/ann",
    ),
    _bash(50703, 50690, "ann", 6 * HOUR),
    Actor(
        53760,
        50703,
        "ann",
        "nvidia-smi dmon -i 7 -s pucm -d 5",
        Runs(-26 * MINUTE),
        threads=3,
        inherited=(7,),
    ),
    _tmux(
        48810,
        "ann",
        "llama",
        9 * DAY,
        executable="/usr/bin/tmux",
        cwd="/home/ann",
        environment={
            **_HOME,
            "TERM": "tmux-256color",
            "TMUX": "/tmp/tmux-1004/default,48810,0",  # noqa: S108 - tmux's own place for it
        },
    ),
    _bash(50720, 48810, "ann", 5 * HOUR),
    _bash(53702, 48810, "ann", 4 * HOUR),
    _shim(50988, "moby", Container("docker", _AUGMENT, "augment"), 1 * HOUR + 11 * MINUTE + 49),
    Actor(
        57990,
        1,
        "ann",
        "/home/ann/.local/bin/jupyter-lab --no-browser --port 8899",
        Runs(-8 * HOUR),
        rss_gib=0.2,
        threads=4,
        leads=True,
        executable="/usr/bin/python3.11",
        cwd="/home/ann/notebooks",
        environment={**_HOME, "JUPYTER_TOKEN": "not-a-token-only-a-demo"},
    ),
)
GPUMON = Actor(
    53790,
    53702,
    "ann",
    "gpumon --demo",
    Runs(-4 * HOUR),
    rss_gib=0.06,
    threads=4,
    executable="/usr/bin/python3.11",
)
"""This program on the simulated machine."""

_OTHERS = (
    _ssh(47201, "dara", 7),
    _bash(47202, 47201, "dara", 6 * HOUR),
    Actor(
        47302,
        47202,
        "dara",
        "/home/dara/envs/eval/bin/python /home/dara/envs/eval/bin/torchrun --standalone "
        "--nproc-per-node 2 /home/dara/lm-eval/eval.py --suite mmlu,gsm8k,humaneval",
        Runs(-(5 * HOUR + 41 * MINUTE + 9)),
        name="torchrun",
        rss_gib=0.3,
        threads=30,
        where=Workload(environment="eval"),
    ),
    Actor(
        30210,
        1,
        "dara",
        "/bin/bash /home/dara/bin/transcribe-today.sh",
        Runs(-5 * DAY),
        leads=True,
    ),
    _slurm_step(38440, "88117", "0", 1 * DAY + 7 * HOUR + 34 * MINUTE),
    _slurm_step(41201, "88123", "batch", 2 * HOUR + 14 * MINUTE + 3),
    Actor(
        41215,
        41201,
        "chen",
        "/bin/bash /var/spool/slurmd/job88123/slurm_script",
        Runs(-(2 * HOUR + 14 * MINUTE + 2)),
        name="slurm_script",
        leads=True,
    ),
    Actor(
        20440,
        1702,
        "bo",
        "/opt/hub/bin/jupyterhub-singleuser --port=43211",
        Runs(-(3 * DAY + 4 * HOUR + 13 * MINUTE)),
        rss_gib=0.2,
        threads=3,
        leads=True,
    ),
    _ssh(79001, "hugo", 9, 2 * DAY),
    _bash(79011, 79001, "hugo", 2 * DAY),
    _shim(9088, "moby", Container("docker", _VLLM, "vllm-qwen14b"), 12 * DAY + 2 * HOUR + 1),
    # The API server of vLLM, which starts its engine.
    Actor(
        9120,
        9088,
        "svc-llm",
        "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-14B-Instruct-AWQ "
        "--gpu-memory-utilization 0.30 --max-model-len 16384 --port 8000",
        Runs(-(12 * DAY + 2 * HOUR)),
        cpu=31.0,
        rss_gib=1.9,
        threads=64,
        leads=True,
        where=Workload(
            server=InferenceServer(
                "vllm",
                "Qwen/Qwen2.5-14B-Instruct-AWQ",
                memory_setting="--gpu-memory-utilization",
                memory_value="0.30",
            )
        ),
    ),
    _shim(
        9340,
        "k8s.io",
        Container("containerd", _EMBEDDINGS, "router", "embeddings-0"),
        12 * DAY + 1 * HOUR + 2,
    ),
    _tmux(36100, "finn", "rl", 20 * DAY),
    _bash(36110, 36100, "finn", 20 * DAY),
    _bash(36120, 36100, "finn", 10 * HOUR),
    Actor(
        55290,
        1,
        "gina",
        "mpirun -np 3 ./lattice --steps 40000000",
        Runs(-(17 * HOUR + 40 * MINUTE + 2)),
        threads=3,
        leads=True,
    ),
)


_LEAD = {lead.pid: lead for lead in LEADS}


def _loaders(parent: int, *pids: int) -> tuple[Actor, ...]:
    """Its data loaders: forked after it opened the GPUs, so they hold the device files too."""
    of = _LEAD[parent]
    return tuple(
        Actor(
            pid,
            parent,
            of.user,
            of.command,
            Runs(of.runs.started + 20),
            rss_gib=2.1,
            threads=3,
            executable=of.executable,
            inherited=tuple(share.gpu for share in of.shares),
        )
        for pid in pids
    )


_ORPHANED = (
    # Only SIGKILL ends it.
    structs.replace(*_loaders(51022, 51047), inherited=(0,), keeps_gib=12.0, stubborn=True),
    structs.replace(*_loaders(44790, 44817), keeps_gib=31.0),
)

EXTRAS = (
    *_SERVICES,
    *_ANNS_OWN,
    GPUMON,
    *_OTHERS,
    *_loaders(51022, 51041, 51042, 51043, 51044, 51045, 51046),
    *_ORPHANED,
    *_loaders(38470, 38502, 38503, 38504, 38505),
    *_loaders(41233, 41241, 41242, 41243, 41244),
)
