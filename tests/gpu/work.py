"""Processes that use the first GPU in a known way, so that what a monitor says can be checked.

    python -m tests.gpu.work KIND [--memory BYTES] [--loaders N] [--beside] [--with-jax]
                                  [--again SECONDS]

holds so much memory, prints ``ready PID``, and works until its standard input ends. On a real card
that is PyTorch with plain allocations; where the simulated driver is, ``tests.driver.cuda``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import select
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from tests.driver import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
HELD = 512 * MIB
"""Bytes that each of them holds, unless told otherwise."""

_READY = "ready"
_START_SECONDS = 90.0
"""Importing PyTorch from a cold disk takes its time."""
_AGAIN_SECONDS = 0.01
_MATRIX = 8192
_BUFFER = 1024 * MIB


class Kind(Enum):
    """What a process does with the GPU.

    Products of matrices in bfloat16, copies of large buffers in its memory, kernels of a few
    microseconds one after the other, or nothing but holding memory.
    """

    TENSOR = "tensor"
    COPY = "copy"
    TINY = "tiny"
    SLEEP = "sleep"


class NoWorkError(Exception):
    """No process can use a GPU here, for the reason in the text."""


class Gpu(Protocol):
    """The first GPU, as the calling process uses it."""

    def free(self) -> int:
        """Bytes that can be allocated."""

    def hold(self, size: int) -> None:
        """Hold so many bytes in all.

        Raises:
            MemoryError: There are not so many; the text is the driver's or the framework's.
        """

    def work(self, kind: Kind, seconds: float) -> None:
        """Work for so long."""

    def loaders(self, count: int) -> object:
        """Have so many processes that load data, as long as the result is kept."""


class TorchGpu:
    """A real GPU through PyTorch.

    Raises:
        NoWorkError: There is no PyTorch, or it sees no GPU.
    """

    def __init__(self) -> None:
        try:
            import torch  # type: ignore[import-not-found,unused-ignore] # of the machine's
        except ImportError:
            raise NoWorkError(f"PyTorch is not installed in {sys.executable}") from None
        if not torch.cuda.is_available():
            raise NoWorkError("PyTorch sees no GPU")
        self._torch = torch
        self._held: Any = None
        self._steps: dict[Kind, Callable[[], object]] = {}

    def free(self) -> int:
        with self._explained():
            return int(self._torch.cuda.mem_get_info()[0])

    def hold(self, size: int) -> None:
        with self._explained():
            self._held = None
            self._torch.cuda.empty_cache()
            self._held = self._torch.empty(size, dtype=self._torch.uint8, device="cuda")

    def work(self, kind: Kind, seconds: float) -> None:
        if kind is Kind.SLEEP:
            time.sleep(seconds)
            return
        with self._explained():
            if kind not in self._steps:
                self._steps[kind] = self._step(kind)
            step, until = self._steps[kind], time.monotonic() + seconds
            while time.monotonic() < until:
                step()
                self._torch.cuda.synchronize()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """CUDA's errors, of which a missing context or workspace is another than a full memory."""
        try:
            yield
        except self._torch.cuda.OutOfMemoryError as error:
            raise MemoryError(_first_line(error)) from None
        except RuntimeError as error:
            raise NoWorkError(f"PyTorch: {_first_line(error)}") from None

    def loaders(self, count: int) -> object:
        data = self._torch.utils.data
        numbers = data.TensorDataset(self._torch.arange(10**6))
        batches = iter(data.DataLoader(numbers, batch_size=64, num_workers=count))
        next(batches)
        return batches

    def _step(self, kind: Kind) -> Callable[[], object]:
        torch = self._torch
        if kind is Kind.TENSOR:
            a, b = (
                torch.randn(_MATRIX, _MATRIX, dtype=torch.bfloat16, device="cuda") for _ in range(2)
            )
            product = torch.empty_like(a)

            def multiply() -> None:
                for _ in range(10):
                    torch.mm(a, b, out=product)

            return multiply
        if kind is Kind.COPY:
            source = torch.zeros(_BUFFER, dtype=torch.uint8, device="cuda")
            target = torch.empty_like(source)

            def copy() -> None:
                for _ in range(20):
                    target.copy_(source)

            return copy
        number = torch.zeros(1, device="cuda")

        def add() -> None:
            for _ in range(1000):
                number.add_(1)

        return add


class SimulatedGpu:
    """The first card of the simulated driver."""

    def __init__(self) -> None:
        from tests.driver.cuda import Cuda

        self._cuda = Cuda()

    def free(self) -> int:
        return self._cuda.free()

    def hold(self, size: int) -> None:
        self._cuda.hold(size)

    def work(self, kind: Kind, seconds: float) -> None:
        """Look for so long as if it worked."""
        self._cuda.work(kind.value)
        time.sleep(seconds)

    def loaders(self, count: int) -> object:
        """Have so many children, which end with their parent."""
        target, parent = _wait, (os.getpid(),)
        started = [multiprocessing.Process(target=target, args=parent) for _ in range(count)]
        for process in started:
            process.start()
        return started


def first_gpu() -> Gpu:
    """The first GPU of this machine.

    Raises:
        NoWorkError: There is none that can be used.
    """
    return SimulatedGpu() if "NVML_SIM_STATE" in os.environ else TorchGpu()


def reserve_as_jax() -> object:
    """Reserve three quarters of the GPU's memory, as JAX does at its first array.

    Raises:
        NoWorkError: There is no JAX, or it sees no GPU.
    """
    if "NVML_SIM_STATE" in os.environ:
        gpu = SimulatedGpu()
        gpu.hold(gpu.free() * 3 // 4)
        return gpu
    try:
        import jax  # type: ignore[import-not-found,unused-ignore] # of the machine's
    except ImportError:
        raise NoWorkError(f"JAX is not installed in {sys.executable}") from None
    try:
        return jax.device_put(jax.numpy.zeros(1), jax.devices("gpu")[0]).block_until_ready()
    except RuntimeError as error:
        raise NoWorkError(f"JAX: {_first_line(error)}") from None


class Worker:
    """A process of ``python -m tests.gpu.work``, and what it says."""

    def __init__(self, kind: Kind, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.work", kind.value, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Who holds the memory: it, or its child; known once it is ready.
        self.pid = self.process.pid

    def refusal(self) -> str:
        """Wait until it is at work, or cannot be; the reason, empty if it is at work."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], _START_SECONDS)
        said = self.process.stdout.readline().split() if ready else ["it did not begin in time"]
        if said[:1] == [_READY]:
            self.pid = int(said[1])
            return ""
        return " ".join(said) or "it ended at once"

    def close(self) -> None:
        """End it, and its child, which sees its standard input end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        # Not read to the end: a child that lives on has them open as well.
        self.process.stdin.close()
        self.process.stdout.close()


@contextmanager
def holder(kind: Kind, *arguments: str) -> Iterator[Worker]:
    """A process that works so until the end of the block, which begins once it does.

    Raises:
        NoWorkError: It cannot work, for the reason in the text.
    """
    worker = Worker(kind, *arguments)
    try:
        refusal = worker.refusal()
        if refusal:
            raise NoWorkError(refusal)
        yield worker
    finally:
        worker.close()


@contextmanager
def working(kind: Kind) -> Iterator[int]:
    """As ``holder``; gives its PID."""
    with holder(kind) as worker:
        yield worker.pid


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _wait(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.1)


def _hold_beside(memory: int) -> subprocess.Popen[bytes]:
    """A child with memory of its own, which goes on when its parent has been killed."""
    command = [sys.executable, "-m", "tests.gpu.work", "sleep", "--memory", str(memory)]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.work", description=__doc__)
    parser.add_argument("kind", type=Kind)
    parser.add_argument("--memory", type=int, default=HELD, help="bytes")
    parser.add_argument("--loaders", type=int, default=0, help="processes that load data")
    parser.add_argument("--beside", action="store_true", help="a child holds memory as well")
    parser.add_argument("--with-jax", action="store_true", help="JAX reserves the memory")
    parser.add_argument("--again", type=float, default=0.0, help="try for so long")
    options = parser.parse_args()
    # Standard input is asked on a thread, since what the main one does may take a while.
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
    try:
        if options.with_jax:
            reserved = reserve_as_jax()
            _say_ready()
            _go_on(lambda: time.sleep(1), reserved)
        gpu = first_gpu()
        kept = gpu.loaders(options.loaders) if options.loaders else None
        _hold(gpu, options.memory, options.again)
        gpu.work(options.kind, 0.1)
    except (NoWorkError, MemoryError) as error:
        print(error, flush=True)
        sys.exit(1)
    if options.beside:
        # The child says that it is ready.
        _hold_beside(options.memory)
    else:
        _say_ready()
    _go_on(lambda: gpu.work(options.kind, 1.0), kept)


def _say_ready() -> None:
    print(_READY, os.getpid(), flush=True)


def _hold(gpu: Gpu, size: int, seconds: float) -> None:
    """Hold so much, if need be only after having said why not yet."""
    until = time.monotonic() + seconds
    said = refused = _refusal(gpu, size)
    if said is not None and seconds:
        print(said, flush=True)
    while refused is not None and time.monotonic() < until:
        time.sleep(_AGAIN_SECONDS)
        refused = _refusal(gpu, size)
    if refused is not None:
        raise refused


def _refusal(gpu: Gpu, size: int) -> MemoryError | None:
    try:
        gpu.hold(size)
    except MemoryError as error:
        return error
    return None


def _go_on(step: Callable[[], object], _kept: object) -> NoReturn:
    """Do this again and again, and keep that alive."""
    while True:
        step()


if __name__ == "__main__":
    main()
