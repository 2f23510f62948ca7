"""A small training loop that times its steps, for ``tests.bench.watching``.

Runs by path in any Python, and needs nothing of gpumon. It writes one line of JSON with what it
trains on, or why it cannot; then for each line with a number of seconds that it reads, one line
with the milliseconds of every step in that time. A step ends when the GPU has finished it: a
monitor that holds a lock of the driver shows in the next launch.

    python tests/bench/training.py gpu|cpu
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, LAYERS, BATCH = 1024, 4, 256
WARM_UP_STEPS = 50
CPU_WIDTH = 40


def torch_step() -> tuple[str, Callable[[], object]]:
    """A step of a small network in PyTorch.

    Raises:
        ImportError: There is no PyTorch.
        RuntimeError: It sees no GPU.
    """
    import torch  # type: ignore[import-not-found,unused-ignore] # an environment of the user's

    if not torch.cuda.is_available():
        raise RuntimeError("PyTorch sees no GPU")
    layers = [
        layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU())
    ]
    network = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    batch = torch.randn(BATCH, WIDTH, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = (network(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()

    return f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}", step


def jax_step() -> tuple[str, Callable[[], object]]:
    """The same in JAX.

    Raises:
        ImportError: There is no JAX.
        RuntimeError: It sees no GPU.
    """
    import jax  # type: ignore[import-not-found,unused-ignore] # an environment of the user's

    device = jax.devices("gpu")[0]
    keys = jax.random.split(jax.random.key(0), LAYERS + 1)
    weights = [jax.random.normal(key, (WIDTH, WIDTH)) * WIDTH**-0.5 for key in keys[1:]]
    batch = jax.random.normal(keys[0], (BATCH, WIDTH))

    def loss(weights: list[object]) -> object:
        out = batch
        for weight in weights:
            out = jax.nn.gelu(out @ weight)
        return ((out - batch) ** 2).mean()

    @jax.jit  # type: ignore[misc,untyped-decorator,unused-ignore] # JAX may have no types here
    def update(weights: list[object]) -> object:
        slopes = jax.grad(loss)(weights)
        return jax.tree.map(lambda weight, slope: weight - 1e-4 * slope, weights, slopes)

    state = {"weights": jax.device_put(weights, device)}

    def step() -> None:
        state["weights"] = jax.block_until_ready(update(state["weights"]))

    return f"JAX {jax.__version__}, {device.device_kind}", step


def cpu_step() -> tuple[str, Callable[[], object]]:
    """A product of two small matrices in plain Python, where there is no card."""
    dice = random.Random(1)
    one, other = (
        [[dice.random() for _ in range(CPU_WIDTH)] for _ in range(CPU_WIDTH)] for _ in range(2)
    )

    def step() -> None:
        columns = list(zip(*other, strict=True))
        for row in one:
            for column in columns:
                sum(a * b for a, b in zip(row, column, strict=True))

    return "a loop of plain Python on the CPU", step


def gpu_step() -> tuple[str, Callable[[], object]]:
    """PyTorch's step, or else JAX's.

    Raises:
        RuntimeError: Neither can be used; the text says why.
    """
    missing = []
    for name, make in (("PyTorch", torch_step), ("JAX", jax_step)):
        try:
            return make()
        except ImportError:  # noqa: PERF203 - twice
            missing.append(f"{name} is not installed in {sys.executable}")
        except Exception as error:  # noqa: BLE001 - whatever a broken installation raises
            said = str(error).splitlines() or [type(error).__name__]
            missing.append(f"{name}: {said[0]}")
    raise RuntimeError("; ".join(missing))


def main() -> int:
    try:
        trained, step = cpu_step() if sys.argv[1:] == ["cpu"] else gpu_step()
        for _ in range(WARM_UP_STEPS):
            step()
    except RuntimeError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    print(json.dumps({"trained": trained}), flush=True)
    for line in sys.stdin:
        until = time.perf_counter() + float(line)
        took: list[float] = []
        while (began := time.perf_counter()) < until or not took:
            step()
            took.append(1000 * (time.perf_counter() - began))
        print(json.dumps(took), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
