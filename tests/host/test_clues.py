"""What commands and environments give away, as they look on real machines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.host.clues import (
    apptainer,
    declared_container,
    environment_clues,
    environment_name,
    jupyter_kernel,
    launcher,
    slurm_job,
)
from gpumon.model.processes import Container
from tests.known import known

KERNEL = "af54e26b-6b24-4dfb-ab99-ec125513e605"
RUNTIME = "/root/.local/share/jupyter/runtime"


@pytest.mark.parametrize(
    ("command", "kernel"),
    [
        (f"/usr/bin/python3 -m ipykernel_launcher -f {RUNTIME}/kernel-{KERNEL}.json", KERNEL),
        (f"/usr/bin/python3 -m colab_kernel_launcher -f {RUNTIME}/kernel-{KERNEL}.json", KERNEL),
        (f"python -m ipykernel -f {RUNTIME}/kernel-{KERNEL}.json", KERNEL),
        (
            f"python3.11 -m ipykernel_launcher --f={RUNTIME}/kernel-v2-28141kSC9njpUbH1b.json",
            "v2-28141kSC9njpUbH1b",
        ),
        ("python /lib/ipykernel_launcher.py -f kernel-4f1c.json", "4f1c"),
        ("python -m ipykernel_launcher -f kernel-123.json --HistoryManager.x=1", "123"),
        (f"xpython -f {RUNTIME}/kernel-{KERNEL}.json", KERNEL),
        (
            f"/usr/lib/R/bin/exec/R -e IRkernel::main() --args {RUNTIME}/kernel-{KERNEL}.json",
            KERNEL,
        ),
        (f"julia -i kernel.jl {RUNTIME}/kernel-{KERNEL}.json", KERNEL),
        ("python train.py --config kernel-small.json", None),
        ("python -m ipykernel_launcher", None),
        ("python train.py", None),
        ("", None),
    ],
)
def test_a_kernel_is_known_by_its_connection_file(command: str, kernel: str | None) -> None:
    assert jupyter_kernel(command.split()) == kernel


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/opt/env/bin/python3.12 /opt/env/bin/torchrun --nproc-per-node 8 train.py", "torchrun"),
        ("python -m torch.distributed.run --nproc_per_node=8 train.py", "torchrun"),
        ("python -u -X dev -m torch.distributed.launch a.py", "torch.distributed.launch"),
        ("/usr/bin/python3 /usr/bin/accelerate launch train.py", "accelerate"),
        ("accelerate-launch train.py", "accelerate"),
        ("accelerate config", None),
        ("python /usr/local/bin/deepspeed --num_gpus 8 train.py", "deepspeed"),
        ("python -u -m deepspeed.launcher.launch --world_info=e30= a.py", "deepspeed"),
        ("mpirun -np 8 ./gmx", "mpirun"),
        ("/bin/sh /opt/intel/bin/mpirun -n 4 ./a", "mpirun"),
        ("/opt/mpich/bin/mpiexec.hydra -n 4 ./a", "mpiexec"),
        ("prterun -n 4 ./a", "mpirun"),
        ("horovodrun -np 4 python a.py", "horovodrun"),
        ("srun --gres=gpu:8 python a.py", "srun"),
        ("slurmstepd: [3385.0]", "slurmstepd"),
        ("/ray/core/src/ray/raylet/raylet --raylet_socket_name=x", "ray"),
        ("colossalai run --nproc_per_node 8 a.py", "colossalai"),
        ("fabric run --devices 8 a.py", "lightning"),
        ("lightning run model a.py", "lightning"),
        ("python train.py torchrun", None),
        ("python -c torchrun", None),
        ("bash -c torchrun", None),
        ("vim torchrun", None),
        ("python -m", None),
        ("python -X", None),
        ("python", None),
        ("", None),
    ],
)
def test_a_launcher_is_known_by_its_command(command: str, name: str | None) -> None:
    assert launcher(command.split()) == name


@pytest.mark.parametrize(
    ("program", "environ", "name"),
    [
        ("python", {"VIRTUAL_ENV": "/home/ann/llama/.venv"}, "llama"),
        ("python", {"VIRTUAL_ENV": "/home/ann/envs/torch25/"}, "torch25"),
        ("python", {"VIRTUAL_ENV": "/home/ann/llama/venv"}, "llama"),
        ("python", {"VIRTUAL_ENV": "/"}, None),
        ("python", {"CONDA_DEFAULT_ENV": "base"}, "base"),
        ("python", {"CONDA_DEFAULT_ENV": "/scratch/ann/env"}, "ann"),
        ("python", {"CONDA_DEFAULT_ENV": "llama:cuda"}, "llama:cuda"),
        ("python", {"CONDA_DEFAULT_ENV": "base", "VIRTUAL_ENV": "/p/llama/.venv"}, "llama"),
        ("/home/ann/miniconda3/envs/torch/bin/python3.12", {}, "torch"),
        ("/home/ann/miniconda3/envs/torch/bin/python", {"CONDA_DEFAULT_ENV": "base"}, "torch"),
        ("/home/ann/llama/.venv/bin/python", {}, "llama"),
        ("/home/ann/.cache/pypoetry/virtualenvs/ft-x1-py3.11/bin/python", {}, "ft-x1-py3.11"),
        ("/home/ann/llama/.pixi/envs/default/bin/python", {}, "llama"),
        ("/home/ann/llama/.pixi/envs/cuda/bin/python", {}, "llama:cuda"),
        ("/home/ann/miniconda3/bin/python", {}, None),
        ("/usr/bin/python3", {}, None),
        ("/usr/bin/python3", {"CONDA_DEFAULT_ENV": "torch"}, "torch"),
        ("/.venv/bin/python", {}, ".venv"),
        ("bin/python", {}, None),
    ],
)
def test_an_environment_goes_by_a_name_that_tells_something(
    program: str, environ: dict[str, str], name: str | None
) -> None:
    assert environment_name((program, "train.py"), environ) == name


ARRAY = {"SLURM_ARRAY_JOB_ID": "88123", "SLURM_ARRAY_TASK_ID": "4"}


@pytest.mark.parametrize(
    ("job", "step", "environ", "told"),
    [
        ("88123", "0", {}, ("88123", "0")),
        ("88127", "batch", {"SLURM_JOB_ID": "88127", **ARRAY}, ("88123_4", "batch")),
        ("90000", "0", {"SLURM_JOB_ID": "88127", **ARRAY}, ("90000", "0")),
        (None, None, {"SLURM_JOB_ID": "88123", "SLURM_STEP_ID": "2"}, ("88123", "2")),
        (None, None, {"SLURM_JOBID": "88123", "SLURM_STEPID": "2"}, ("88123", "2")),
        (None, None, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967290"}, ("7", "interactive")),
        (None, None, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967291"}, ("7", "batch")),
        (None, None, {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "4294967292"}, ("7", "extern")),
        (None, None, {"SLURM_JOB_ID": "88127", **ARRAY}, ("88123_4", None)),
        (None, None, {"SLURM_JOB_ID": "; rm -rf /"}, (None, None)),
        (None, None, {"SLURM_STEP_ID": "0"}, (None, None)),
        (None, None, ARRAY, (None, None)),
    ],
)
def test_the_slurm_job_of_the_cgroup_and_of_the_environment_agree(
    job: str | None, step: str | None, environ: dict[str, str], told: tuple[str | None, str | None]
) -> None:
    assert slurm_job(job, step, environ) == told


def test_an_apptainer_image_is_a_container() -> None:
    both = {"APPTAINER_NAME": "pytorch.sif", "SINGULARITY_NAME": "pytorch.sif"}
    assert apptainer(both) == Container("apptainer", name="pytorch.sif")
    old = known(apptainer({"SINGULARITY_NAME": "pytorch.sif"}))
    assert old.label == "singularity pytorch.sif"
    assert apptainer({}) is None


def test_a_runtime_is_believed_only_when_it_is_known() -> None:
    assert declared_container({"container": "podman"}) == Container("podman")
    assert declared_container({"container": "oci"}) is None
    assert declared_container({}) is None


def test_only_what_is_wanted_is_kept_of_an_environment() -> None:
    environ = (
        b"SECRET=s3\0VIRTUAL_ENV=/p/\xffx\0TMUX=\0CONDA_DEFAULT_ENV\0STY=1.pts\0=x\0HOSTNAME=a=b"
    )
    assert environment_clues(environ) == {
        "VIRTUAL_ENV": "/p/\N{REPLACEMENT CHARACTER}x",
        "HOSTNAME": "a=b",
    }


def test_a_long_value_is_cut() -> None:
    clues = environment_clues(b"JPY_SESSION_NAME=" + b"x" * 100_000)
    assert len(clues["JPY_SESSION_NAME"]) == 4096


@given(st.lists(st.text()), st.dictionaries(st.sampled_from(sorted(ARRAY)), st.text()))
def test_no_text_makes_it_fail(command: list[str], environ: dict[str, str]) -> None:
    jupyter_kernel(command)
    launcher(command)
    environment_name(command, environ)
    slurm_job(None, None, environ)


@given(st.binary())
def test_no_environment_makes_it_fail(environ: bytes) -> None:
    clues = environment_clues(environ + b"\0VIRTUAL_ENV=" + environ)
    environment_name(("python",), clues)
