"""What the command and the environment of a process tell of where it belongs.

Both are other people's text: they may hold anything, and an environment is handed down to programs
that have nothing to do with what it speaks of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpumon.host.cgroups import step_name
from gpumon.model.snapshot import Container

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
    )
)
_VALUE_BYTES = 4096

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*|sh|bash|dash")
_OPTIONS_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")

_KERNEL_FILE = re.compile(r"(?:-{1,2}[\w-]+=)?(?:.*/)?kernel-([\w-]+)\.json", re.DOTALL)
_KERNEL_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|v\d[\w-]*")
"""As jupyter_client makes them, and as VS Code does (``v2-28141kSC9njpUbH1b``)."""
_KERNEL_PROGRAM = re.compile(r"(?:colab_kernel_launcher|ipykernel(?:_launcher)?)(?:\.py)?")

_ENVIRONMENT_PROGRAM = re.compile(r"(/.+)/bin/[^/]+", re.DOTALL)
_FOLDERS_OF_ENVIRONMENTS = ("envs", "virtualenvs", ".virtualenvs")
_UNNAMED_ENVIRONMENTS = (".venv", "venv", ".env", "env")

_JOB_NUMBER = re.compile(r"[0-9]{1,10}")

_CONTAINERS = ("docker", "lxc", "podman", "systemd-nspawn")
"""Values of ``container``, which runtimes set: systemd's ``CONTAINER_INTERFACE``."""

_LAUNCHERS = {
    # PyTorch's elastic agent starts a worker for each card and starts them again when one fails.
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    # What came before torchrun, and still works.
    "torch.distributed.launch": "torch.distributed.launch",
    # Hugging Face Accelerate; its command does other things as well.
    "accelerate launch": "accelerate",
    "accelerate-launch": "accelerate",
    "accelerate.commands.launch": "accelerate",
    # DeepSpeed: the command reaches the nodes, the module starts the workers on each.
    "deepspeed": "deepspeed",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed.launcher.launch": "deepspeed",
    # MPI: the command that a person runs, under the names that Open MPI and MPICH give it.
    "mpirun": "mpirun",
    "mpiexec": "mpiexec",
    "mpiexec.hydra": "mpiexec",
    "orterun": "mpirun",
    "prterun": "mpirun",
    # MPI: the daemon that stands for that command on the other nodes.
    "orted": "mpirun",
    "prted": "mpirun",
    "hydra_pmi_proxy": "mpiexec",
    # Horovod's own, over MPI or Gloo.
    "horovodrun": "horovodrun",
    # Slurm: where the command was typed, and the parent of every step's tasks on the node.
    "srun": "srun",
    "slurmstepd": "slurmstepd",
    # Ray: the parent of all its workers on the node, whatever job they serve.
    "raylet": "ray",
    # Colossal-AI's command does other things as well.
    "colossalai run": "colossalai",
    # Lightning Fabric, by its older name and its newer.
    "lightning run": "lightning",
    "fabric run": "lightning",
}
"""Programs, modules and commands that start the processes of a job, and what to call them."""


def environment_clues(environ: bytes) -> dict[str, str]:
    """The variables that matter here, from the content of ``/proc/PID/environ``."""
    clues = {}
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in _WANTED and value:
            clues[name.decode()] = value[:_VALUE_BYTES].decode(errors="replace")
    return clues


def jupyter_kernel(command: Sequence[str]) -> str | None:
    """The id of the Jupyter kernel that this command starts, from the name of its connection file.

    A file called ``kernel-small.json`` may be anything, so the command has to start IPython's
    kernel, or the name has to be one that Jupyter or VS Code makes up.
    """
    known = False
    for argument in command:
        file = _KERNEL_FILE.fullmatch(argument)
        if file is not None and (known or _KERNEL_ID.fullmatch(file[1])):
            return file[1]
        known = known or _KERNEL_PROGRAM.fullmatch(_base(argument)) is not None
    return None


def launcher(command: Sequence[str]) -> str | None:
    """What to call the job launcher that this command runs, if it runs one."""
    program, argument = _program(command)
    return _LAUNCHERS.get(program) or _LAUNCHERS.get(f"{program} {argument}")


def environment_name(command: Sequence[str], clues: Mapping[str, str]) -> str | None:
    """The conda environment or the virtual environment that a process runs in.

    The path of its program goes first: it says what runs, while variables are also inherited by
    what was started from another environment by its full path. A virtual environment goes before
    conda's, which most often is the one that was active when it was entered.
    """
    program = _ENVIRONMENT_PROGRAM.fullmatch(command[0]) if command else None
    if program is not None:
        name = _plain_environment(program[1])
        if name is not None:
            return name
    if "VIRTUAL_ENV" in clues:
        return _environment_folder(clues["VIRTUAL_ENV"])
    conda = clues.get("CONDA_DEFAULT_ENV")
    # One that was made at a path of its own has that for a name.
    return _environment_folder(conda) if conda is not None and "/" in conda else conda


def slurm_job(
    job: str | None, step: str | None, clues: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The Slurm job of a process and its step.

    Args:
        job: Its number as the cgroup tells it, which is the truth where it is told.
        step: The step, likewise.
        clues: Its environment: an array's number and the task's are only there.
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


def apptainer(clues: Mapping[str, str]) -> Container | None:
    """The Apptainer or Singularity image that a process runs in: neither makes a cgroup."""
    for runtime, variable in (("apptainer", "APPTAINER_NAME"), ("singularity", "SINGULARITY_NAME")):
        if variable in clues:
            return Container(runtime, name=clues[variable])
    return None


def declared_container(clues: Mapping[str, str]) -> Container | None:
    """A container of which only the runtime is known, for where no cgroup shows it."""
    runtime = clues.get("container", "")
    return Container(runtime) if runtime in _CONTAINERS else None


def _program(command: Sequence[str]) -> tuple[str, str]:
    """What a command runs, past the interpreter: a program or a module; and its first argument."""
    at = 0
    if command and _INTERPRETER.fullmatch(_base(command[0])):
        at = 1
        while at < len(command) and command[at].startswith("-"):
            option = command[at]
            if option == "-c":
                return "", ""
            at += 2 if option in _OPTIONS_WITH_VALUE else 1
            if option == "-m":
                break
    program, *arguments = command[at : at + 2] or [""]
    # slurmstepd and others write a title in place of their arguments: "slurmstepd: [3385.0]".
    return _base(program).partition(":")[0], "".join(arguments)


def _plain_environment(folder: str) -> str | None:
    """The name of an environment whose folder shows that it is one."""
    parent, _, name = folder.rpartition("/")
    if name in _UNNAMED_ENVIRONMENTS or _base(parent) in _FOLDERS_OF_ENVIRONMENTS:
        return _environment_folder(folder)
    return None


def _environment_folder(folder: str) -> str | None:
    parts = folder.rstrip("/").split("/")
    name = parts[-1]
    # pixi keeps a project's environments in it, and calls them by both names.
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
