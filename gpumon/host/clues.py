"""Finds out where a process belongs from its command and environment.

Both are untrusted text, and an environment is also inherited by programs that it does not describe.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.host.containers import step_name
from gpumon.model.processes import Container
from gpumon.serving import ENGINES
from gpumon.text.command_lines import started_program

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_WANTED = frozenset(
    (
        b"APPTAINER_NAME",
        b"CONDA_DEFAULT_ENV",
        b"HOSTNAME",
        b"JPY_SESSION_NAME",
        b"SINGULARITY_NAME",
        b"SLURM_ARRAY_JOB_ID",
        b"SLURM_ARRAY_TASK_ID",
        b"SLURM_JOBID",
        b"SLURM_JOB_ID",
        b"SLURM_STEPID",
        b"SLURM_STEP_ID",
        b"TMUX",
        b"VIRTUAL_ENV",
        b"container",
        *(name.encode() for engine in ENGINES.values() for name in engine.commands.variables),
    )
)
_VALUE_BYTES = 4096

_KERNEL_FILE = re.compile(r"(?:-{1,2}[\w-]+=)?(?:.*/)?kernel-([\w-]+)\.json", re.DOTALL)
_KERNEL_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|v\d[\w-]*")
"""The ids of jupyter_client, and those of VS Code (``v2-28141kSC9njpUbH1b``)."""
_KERNEL_PROGRAM = re.compile(r"(?:colab_kernel_launcher|ipykernel(?:_launcher)?)(?:\.py)?")

_ENVIRONMENT_PROGRAM = re.compile(r"(/.+)/bin/[^/]+", re.DOTALL)
_FOLDERS_OF_ENVIRONMENTS = ("envs", "virtualenvs", ".virtualenvs")
_UNNAMED_ENVIRONMENTS = (".venv", "venv", ".env", "env")

_STEP_DAEMON = re.compile(r"slurmstepd: \[([0-9]{1,10})\.([0-9a-z+]{1,21})\] *")
_JOB_NUMBER = re.compile(r"[0-9]{1,10}")

_CONTAINERS = ("docker", "lxc", "podman", "systemd-nspawn")
"""Values of the variable ``container``, which runtimes set: systemd's ``CONTAINER_INTERFACE``."""

_LAUNCHERS = {
    # PyTorch's elastic agent starts a worker for each GPU, and restarts them if one fails.
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    # The predecessor of torchrun.
    "torch.distributed.launch": "torch.distributed.launch",
    # Hugging Face Accelerate, whose command also has other subcommands.
    "accelerate launch": "accelerate",
    "accelerate-launch": "accelerate",
    "accelerate.commands.launch": "accelerate",
    # DeepSpeed: the command connects to the nodes, the module starts the workers on each.
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    # MPI: the user's command, with the names of Open MPI and MPICH.
    "mpirun": "mpirun",
    "mpiexec": "mpiexec",
    "mpiexec.hydra": "mpiexec",
    "orterun": "mpirun",
    "prterun": "mpirun",
    # MPI: the daemon on the other nodes.
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpiexec",
    # Horovod's own, over MPI or Gloo.
    "horovodrun": "horovodrun",
    # Slurm: the user's command, and the parent of a step's tasks on a node.
    "srun": "srun",
    "slurmstepd": "slurmstepd",
    # Ray: the parent of all workers of a node, of whatever job.
    "raylet": "ray",
    # Colossal-AI, whose command also has other subcommands.
    "colossalai run": "colossalai",
    # Lightning Fabric, with its older and its newer name.
    "lightning run": "lightning",
    "fabric run": "lightning",
}
"""Programs, modules and commands that start the processes of a job, with the displayed name."""


def environment_clues(environ: bytes) -> dict[str, str]:
    """The used variables of ``/proc/PID/environ``."""
    clues = {}
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in _WANTED and value:
            clues[name.decode()] = value[:_VALUE_BYTES].decode(errors="replace")
    return clues


def jupyter_kernel(command: Sequence[str]) -> str | None:
    """The id of the Jupyter kernel that this command starts, from its connection file's name.

    ``kernel-small.json`` can be any file, so the command must start IPython's kernel, or the name
    must be one that Jupyter or VS Code generates.
    """
    known = False
    for argument in command:
        file = _KERNEL_FILE.fullmatch(argument)
        if file is not None and (known or _KERNEL_ID.fullmatch(file[1])):
            return file[1]
        known = known or _KERNEL_PROGRAM.fullmatch(_base(argument)) is not None
    return None


def launcher(command: Sequence[str]) -> str | None:
    """The displayed name of the job launcher that this command runs, if any."""
    program, at = started_program(command)
    argument = "".join(command[at + 1 : at + 2])
    return _LAUNCHERS.get(program) or _LAUNCHERS.get(f"{program} {argument}")


def environment_name(command: Sequence[str], clues: Mapping[str, str]) -> str | None:
    """The conda environment or the virtual environment that a process runs in.

    The path of its program comes first, because variables may be inherited from another
    environment. A virtual environment comes before that of conda, which is usually the one in which
    the virtual environment was activated.
    """
    program = _ENVIRONMENT_PROGRAM.fullmatch(command[0]) if command else None
    if program is not None:
        name = _plain_environment(program[1])
        if name is not None:
            return name
    if "VIRTUAL_ENV" in clues:
        return _environment_folder(clues["VIRTUAL_ENV"])
    conda = clues.get("CONDA_DEFAULT_ENV")
    # An environment created with a path has that path as its name.
    return _environment_folder(conda) if conda is not None and "/" in conda else conda


def slurm_job(
    job: str | None, step: str | None, clues: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The Slurm job of a process and its step.

    Args:
        job: Its number from the cgroup, which comes before that of the environment.
        step: The step from the cgroup.
        clues: Its environment, which alone has the numbers of an array and its tasks.
    """
    own = _number(clues, "SLURM_JOB_ID", "SLURM_JOBID")
    if job is None:
        job = own
        step = step_name(clues.get("SLURM_STEP_ID") or clues.get("SLURM_STEPID"))
    if job is None:
        return None, None
    array = _number(clues, "SLURM_ARRAY_JOB_ID")
    task = _number(clues, "SLURM_ARRAY_TASK_ID")
    if job == own and array is not None and task is not None:
        job = f"{array}_{task}"
    return job, step


def slurm_daemon(command: Sequence[str]) -> tuple[str, str | None] | None:
    """The job and the step that a ``slurmstepd`` runs, by its title: ``slurmstepd: [3385.0]``."""
    found = _STEP_DAEMON.fullmatch(" ".join(command)) if command else None
    return None if found is None else (found[1], step_name(found[2]))


def apptainer(clues: Mapping[str, str]) -> Container | None:
    """The Apptainer or Singularity image that a process runs in; they have no cgroups."""
    for runtime, variable in (("apptainer", "APPTAINER_NAME"), ("singularity", "SINGULARITY_NAME")):
        if variable in clues:
            return Container(runtime, name=clues[variable])
    return None


def declared_container(clues: Mapping[str, str]) -> Container | None:
    """A container of which only the runtime is known, if no cgroup shows it."""
    runtime = clues.get("container", "")
    return Container(runtime) if runtime in _CONTAINERS else None


def _plain_environment(folder: str) -> str | None:
    """The name of an environment whose folder is typical of one."""
    parent, _, name = folder.rpartition("/")
    if name in _UNNAMED_ENVIRONMENTS or _base(parent) in _FOLDERS_OF_ENVIRONMENTS:
        return _environment_folder(folder)
    return None


def _environment_folder(folder: str) -> str | None:
    parts = folder.rstrip("/").split("/")
    name = parts[-1]
    # pixi has environments in a project's folder, named after both.
    if len(parts) > 3 and parts[-3:-1] == [".pixi", "envs"]:
        return parts[-4] if name == "default" else f"{parts[-4]}:{name}"
    if name in _UNNAMED_ENVIRONMENTS and len(parts) > 1:
        name = parts[-2] or name
    return name or None


def _number(clues: Mapping[str, str], *names: str) -> str | None:
    for name in names:
        value = clues.get(name)
        if value is not None and _JOB_NUMBER.fullmatch(value):
            return value
    return None


def _base(path: str) -> str:
    return path.rpartition("/")[2]
