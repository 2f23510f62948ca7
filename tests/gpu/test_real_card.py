"""On a real card: every value against nvidia-smi, a real owner, ten samples a second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from gpumon.model.metrics import Metric, Tier, Unit
from gpumon.model.snapshot import GPU_METRICS, Gpu, GpuStatus, Snapshot, Unknown
from tests.command import GPUMON, run_program
from tests.driver import MIB
from tests.gpu.agreement import COMPARED, DEPRECATED, agree
from tests.gpu.card import HAS_CARD
from tests.gpu.witness import Rate, Values
from tests.gpu.work import ROOT
from tests.known import known

needs_gpu = pytest.mark.skipif(not HAS_CARD, reason="there is no NVIDIA card here")
needs_card = pytest.mark.skipif(
    not HAS_CARD or shutil.which("nvidia-smi") is None, reason="there is no NVIDIA card here"
)

UNSUPPORTED = {Unknown.NOT_SUPPORTED}

CUDA_OWNER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code: sys.exit(f"CUDA error {code}")
context, device, memory = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(512 << 20)))
print("ready", flush=True)
sys.stdin.read()
"""


def clean_environment() -> dict[str, str]:
    """Without whatever a test of the simulated driver left behind."""
    return {name: value for name, value in os.environ.items() if name != "NVML_SIM_STATE"}


def witness(*arguments: str) -> bytes:
    return subprocess.run(
        [sys.executable, "-m", "tests.gpu.witness", *arguments],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def values() -> Values:
    return msgspec.json.decode(witness("values"), type=Values)


def disagreements(metric: Metric, values: Values) -> list[str]:
    """A line for each card of which nvidia-smi says something else."""
    said = values.smi.get(metric.smi or "")
    if said is None:
        pytest.skip(f"this nvidia-smi does not know {metric.smi}")
    if all(DEPRECATED in text for text in said):
        pytest.skip(f"this nvidia-smi no longer answers {metric.smi}")
    return [
        f"{after.index}: nvidia-smi says {text}, gpumon {getattr(before, metric.field)} before and "
        f"{getattr(after, metric.field)} after ({after.unknown.get(metric.field)})"
        for before, after, text in zip(values.before.gpus, values.after.gpus, said, strict=True)
        if not agree(metric, before, after, text)
    ]


@pytest.mark.gpu
@needs_card
@pytest.mark.parametrize("metric", COMPARED, ids=lambda metric: metric.field)
def test_every_value_is_the_one_nvidia_smi_shows(metric: Metric, values: Values) -> None:
    wrong = disagreements(metric, values)
    if wrong and metric.tier is not Tier.STATIC:
        # What moves may have leapt there and back between the samples, though hardly twice.
        wrong = disagreements(metric, msgspec.json.decode(witness("values"), type=Values))
    assert not wrong


def gpu_with(**facts: float) -> Gpu:
    return Gpu(index=0, uuid="GPU-0", status=GpuStatus.OK, **facts)  # type: ignore[arg-type]  # of any field


@pytest.mark.parametrize(
    ("field", "first", "last", "text", "agrees"),
    [
        ("power_limit", 700.0, 700.0, "700.00", True),
        ("power_limit", 700.0, 700.0, "699.00", False),
        ("memory_total", 80 * 1024 * MIB + 5, 80 * 1024 * MIB + 5, "81920", True),
        ("memory_total", 80 * 1024 * MIB, 80 * 1024 * MIB, "81918", False),
        ("fan_speed", 30, 31, "32", True),
        ("fan_speed", 30, 31, "40", False),
        ("pcie_generation", 1, 5, "1", True),
        ("pcie_generation", 1, 5, "5", True),
        ("pcie_generation", 1, 5, "3", False),
        ("pcie_width", 16, 16, "8", False),
        ("utilization_gpu", 10, 30, "50", True),
        ("utilization_gpu", 10, 30, "90", False),
        ("power_draw", None, None, "[N/A]", True),
        ("power_draw", 90.0, 90.0, "[N/A]", False),
        ("power_draw", None, None, "90.00", False),
    ],
)
def test_a_comparison_with_nvidia_smi_can_fail(
    field: str, first: float, last: float, text: str, agrees: bool
) -> None:
    metric = next(metric for metric in COMPARED if metric.field == field)
    before, after = gpu_with(**{field: first}), gpu_with(**{field: last})
    assert agree(metric, before, after, text) is agrees


@pytest.mark.gpu
@needs_card
def test_every_card_answers(values: Values) -> None:
    assert values.after.trouble is None
    assert {gpu.status for gpu in values.after.gpus} <= {GpuStatus.OK, GpuStatus.ASLEEP}


@pytest.mark.gpu
@needs_card
def test_how_much_of_a_card_works_is_told_from_hopper_on(values: Values) -> None:
    """The driver's own answer for this user may be a refusal; it is never a 0 that is none."""
    shares = [metric.field for metric in GPU_METRICS if metric.unit is Unit.SHARE]
    for gpu in values.after.gpus:
        if gpu.status is not GpuStatus.OK:
            continue
        told = {field: getattr(gpu, field) for field in shares}
        reasons = {gpu.unknown.get(field) for field in shares if told[field] is None}
        hopper = float(gpu.compute_capability or 0) >= 9
        expected = {Unknown.NO_PERMISSION, Unknown.NOT_SUPPORTED} if hopper else UNSUPPORTED
        assert reasons <= expected, (gpu.name, told, gpu.unknown)
        assert all(0 <= value <= 100 for value in told.values() if value is not None), told
        if told["sm_active"] is not None and told["sm_occupancy"] is not None:
            # A warp that is resident makes its SM active.
            assert told["sm_occupancy"] <= told["sm_active"] + 1


@pytest.fixture
def cuda_process(values: Values) -> Iterator[tuple[int, str]]:
    """A process with 512 MiB on the first card that is awake; its PID and the card's UUID."""
    uuid = next(gpu.uuid for gpu in values.after.gpus if gpu.status is GpuStatus.OK)
    process = subprocess.Popen(
        [sys.executable, "-c", CUDA_OWNER],
        env={**clean_environment(), "CUDA_VISIBLE_DEVICES": uuid},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            pytest.skip("CUDA does not run here")
        yield process.pid, uuid
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


@pytest.mark.gpu
@needs_card
def test_a_process_that_holds_memory_is_its_owner(cuda_process: tuple[int, str]) -> None:
    pid, uuid = cuda_process
    snapshot: Snapshot = msgspec.json.decode(witness("values"), type=Values).after
    owner = next((process for process in snapshot.processes if process.id.pid == pid), None)
    assert owner is not None, f"{pid} is not among {[p.id.pid for p in snapshot.processes]}"
    assert "C" in owner.type
    (use,) = owner.uses
    assert use.gpu_uuid == uuid
    assert known(use.memory_used) >= 512 * MIB
    assert owner.command[1:2] == ("-c",)
    assert owner.uid == os.getuid()


@pytest.mark.gpu
@needs_card
def test_ten_samples_a_second_hold() -> None:
    rate = msgspec.json.decode(witness("rate", "10"), type=Rate)
    assert rate.late == 0
    assert rate.longest < 0.1
    assert rate.driver_share <= 0.06


# What gpumon calls free is what CUDA sees.

SEEN_BY_CUDA = """
import ctypes, sys, uuid
cuda = ctypes.CDLL("libcuda.so.1")
def check(code):
    if code: sys.exit(f"CUDA error {code}")
count, device, name = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
check(cuda.cuInit(0))
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
for ordinal in range(count.value):
    check(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    check(cuda.cuDeviceGetUuid(ctypes.byref(name), device))
    print(f"GPU-{uuid.UUID(bytes=bytes(name))}")
"""


def output(command: list[str], **variables: str) -> str:
    done = run_program(command, {**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.gpu
@needs_gpu
def test_cuda_sees_what_was_chosen_and_nothing_else() -> None:
    chosen = output([*GPUMON, "select", "-n", "1-16", "--free", "1M"])
    look = [sys.executable, "-c", SEEN_BY_CUDA]
    assert output(look, CUDA_VISIBLE_DEVICES=chosen).split() == chosen.split(",")
    variables = dict(
        line.split("=")
        for line in output(
            [*GPUMON, "select", "-n", "1-16", "--free", "1M", "--format", "env"]
        ).splitlines()
    )
    assert output(look, **variables).split() == chosen.split(",")


@pytest.mark.gpu
@needs_gpu
def test_a_job_sees_the_card_that_was_reserved_for_it() -> None:
    command = [*GPUMON, "run", "--free", "1M", "--", sys.executable, "-c", SEEN_BY_CUDA]
    free = output([*GPUMON, "select", "-n", "1-16", "--free", "1M"]).split(",")
    (seen,) = output(command).split()
    assert seen in free
