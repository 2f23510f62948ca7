"""``gpumon.select()``: free GPUs for a program, by the rule of ``gpumon select``."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.api.errors import NoGpuFitsError
from gpumon.api.local import selection_of, whole_machine
from gpumon.model.snapshot import Gpu  # noqa: TC001 - msgspec resolves annotations at run time

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpumon.api.local import Gpus
    from gpumon.scheduling.chooser import Chooser
    from gpumon.scheduling.eligibility import Eligibility
    from gpumon.scheduling.requirements import Requirements

_TICK_SECONDS = 1.0


class Selected(Struct, frozen=True):
    """The selected GPUs.

    Attributes:
        uuids: UUIDs of the GPUs or MIG devices, in the order of nvidia-smi's indices.
        gpus: These GPUs as they were then; of a MIG device its GPU.
        reason: Why these were selected.
        variables: The environment variables with which a program sees just these, such as
            ``CUDA_VISIBLE_DEVICES``; for AMD's GPUs ``ROCR_VISIBLE_DEVICES`` and
            ``HIP_VISIBLE_DEVICES``.
    """

    uuids: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    reason: str
    variables: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<gpumon.Selected {','.join(self.uuids)}: {self.reason}>"

    @property
    def cuda_visible_devices(self) -> str:
        """The value of ``CUDA_VISIBLE_DEVICES`` with which a program sees just these.

        Raises:
            ValueError: They are of another maker: ``variables`` and ``env`` have its variables.
        """
        if "CUDA_VISIBLE_DEVICES" not in self.variables:
            raise ValueError(f"not NVIDIA's GPUs: use variables or env, {self.variables}")
        return self.variables["CUDA_VISIBLE_DEVICES"]

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process with these variables, for ``subprocess.run(env=...)``."""
        return {**os.environ, **self.variables}


def select(
    n: int | tuple[int, int] = 1,
    *,
    free: str | int | None = None,
    total: str | int | None = None,
    util: float | None = None,
    temp: float | None = None,
    processes: int | None = None,
    model: str | Iterable[str] = (),
    arch: str | Iterable[str] = (),
    capability: tuple[int, int] | None = None,
    gpus: Gpus = None,
    exclude: Gpus = None,
    mig: bool = False,
    mine_is_free: bool = False,
    stable: float | None = None,
    wait: float | bool = False,
    demo: bool = False,
) -> Selected:
    """Select free GPUs, as ``gpumon select`` does; nothing is reserved: ``gpumon run`` does that.

    ``CUDA_VISIBLE_DEVICES`` of this process is respected.

    Args:
        n: How many; ``(1, 4)`` is as many as are free, from 1 to 4.
        free: At least this much free memory, ``"20G"`` or bytes; other processes may then run on
            the GPU. Otherwise it must be empty.
        total: At least this much memory in all.
        util: At most this utilisation, percent.
        temp: At most this temperature, degrees Celsius.
        processes: At most this many compute processes.
        model: The product name contains one of these: ``"h100"``.
        arch: One of these architectures: ``"hopper"``.
        capability: At least this CUDA compute capability: ``(8, 0)``.
        gpus: Only these GPUs, as in ``snapshot``.
        exclude: None of these.
        mig: MIG devices instead of whole GPUs.
        mine_is_free: Ignore your own processes and count their memory as free.
        stable: Watch the GPUs until they have met all this for so many seconds.
        wait: Wait for GPUs to become free, for so many seconds, or with ``True`` without limit.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        NoGpuFitsError: Too few fit, in the end; waiting for what can never come raises it at once.
        GpuError: There is no driver or no such GPU, or the driver does not answer.
        UncertainAllocationError: ``CUDA_VISIBLE_DEVICES`` names GPUs as only CUDA can resolve them.
        ValueError: A value is invalid.
    """
    from gpumon.scheduling.requirements import Requirements

    least, most = _count(n)
    requirements = Requirements(
        least=least,
        most=most,
        free=_size("free", free),
        total=_size("total", total),
        utilization=_number("util", util),
        temperature=_number("temp", temp),
        processes=processes,
        models=_names(model),
        architectures=_names(arch),
        capability=_capability(capability),
        only=selection_of(gpus),
        never=selection_of(exclude or None),
        mig=mig,
        mine_is_free=mine_is_free,
        stable=_number("stable", stable),
    )
    limit = float("inf") if wait is True else _number("wait", float(wait)) or 0.0
    return _selected(requirements, limit, demo=demo)


def _count(n: int | tuple[int, int]) -> tuple[int, int]:
    both = (n, n) if isinstance(n, int) else n
    if (
        not isinstance(both, tuple)
        or len(both) != 2
        or not all(isinstance(one, int) and not isinstance(one, bool) for one in both)
        or not 1 <= both[0] <= both[1]
    ):
        raise ValueError(f"n must be 1 or more, or two such numbers in order, not {n!r}")
    return both


def _number(name: str, number: float | None) -> float | None:
    if number is not None and not (isinstance(number, (int, float)) and 0 <= number < math.inf):
        raise ValueError(f"{name} must be a number of 0 or more, not {number!r}")
    return number


def _capability(capability: tuple[int, int] | None) -> tuple[int, int] | None:
    if capability is None:
        return None
    try:
        major, minor = map(int, capability)
    except (TypeError, ValueError):
        raise ValueError(f"capability must be such as (8, 0), not {capability!r}") from None
    return major, minor


def _selected(requirements: Requirements, wait: float, *, demo: bool) -> Selected:
    from gpumon.sampling.gpu_sampler import GpuSampler, UnavailableError
    from gpumon.scheduling.chooser import Chooser
    from gpumon.scheduling.outputs import as_variables
    from gpumon.scheduling.reservation.locks import Locks
    from gpumon.scheduling.select import settled

    deadline = time.monotonic() + wait
    source, links = whole_machine(demo=demo)
    locks = Locks(None, os.environ, make=False)
    try:
        chooser = Chooser(requirements, os.environ, locks, links)
        with GpuSampler(source) as sampler:
            _, verdicts = settled(sampler, chooser)
            sampler.collector.interval = _TICK_SECONDS
            while (choice := chooser.choose(verdicts)) is None:
                left = deadline - time.monotonic()
                if left <= 0 or chooser.hopeless(verdicts):
                    raise _no_fit(chooser, verdicts)
                try:
                    snapshot = sampler.next(min(left, _TICK_SECONDS))
                except UnavailableError:
                    # A driver that is gone may come back.
                    continue
                if snapshot is not None:
                    verdicts = chooser.judge(snapshot)
    finally:
        locks.close()
    return Selected(
        tuple(one.uuid for one in choice.candidates),
        tuple(one.gpu for one in choice.candidates),
        choice.reason,
        as_variables(choice.candidates, [one.candidate.gpu for one in verdicts]),
    )


def _no_fit(chooser: Chooser, verdicts: Sequence[Eligibility]) -> NoGpuFitsError:
    return NoGpuFitsError(
        chooser.refusal(verdicts),
        {one.candidate.label: one.refusal.sentence for one in verdicts if one.refusal is not None},
    )


def _size(name: str, size: str | int | None) -> int | None:
    if not isinstance(size, str):
        number = _number(name, size)
        return None if number is None else int(number)
    from gpumon.text.unit_parsing import SIZE, QuantityError

    try:
        return int(SIZE.read(size)[0])
    except (QuantityError, OverflowError) as error:
        raise ValueError(f"{name} cannot be {size!r}: {error}") from None


def _names(names: str | Iterable[str]) -> tuple[str, ...]:
    each = names.split(",") if isinstance(names, str) else names
    return tuple(name.strip().lower() for name in each if name.strip())
