"""``gpumon.select()``: free GPUs for a program, by the rule of ``gpumon select``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeGuard

from msgspec import Struct

from gpumon.api.errors import NoGpuFitsError
from gpumon.api.local import exclusion_of, open_machine, selection_of
from gpumon.model.snapshot import Gpu  # noqa: TC001 - msgspec resolves annotations at run time
from gpumon.text.unit_parsing import SIZE, TIMESPAN, QuantityError

if TYPE_CHECKING:
    from gpumon.api.local import Gpus
    from gpumon.scheduling.requirements import Requirements
    from gpumon.text.unit_parsing import Measure


_MOST = 2**63
"""More bytes or seconds than anybody means."""


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
    stable: float | str | None = None,
    wait: float | str | bool | None = False,
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
        stable: Watch the GPUs until they have met all this for so many seconds, or ``"5m"``.
        wait: Wait for GPUs to become free, for so many seconds or ``"2h"``, with ``True`` without
            limit; as ``gpumon run --wait``, also for a driver that does not answer.
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
        processes=_whole("processes", processes),
        models=_names("model", model),
        architectures=_names("arch", arch),
        capability=_capability(capability),
        only=selection_of(gpus),
        never=exclusion_of(exclude),
        mig=_switch("mig", mig),
        mine_is_free=_switch("mine_is_free", mine_is_free),
        stable=_seconds("stable", stable) or None,
    )
    return _selected(requirements, _limit(wait), demo=demo)


def _count(n: int | tuple[int, int]) -> tuple[int, int]:
    ends = tuple(n) if isinstance(n, (tuple, list)) else (n, n)
    least, most = map(_plain, ends) if len(ends) == 2 else (None, None)
    if not (_is_whole(least) and _is_whole(most) and 1 <= least <= most):
        raise ValueError(f"n must be 1 or more, or two such numbers in order, not {n!r}")
    return least, most


def _plain(value: object) -> object:
    """A value of Python in place of one of NumPy or PyTorch, such as ``numpy.int64(2)``."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _whole(name: str, value: int | None) -> int | None:
    number = _plain(value)
    if number is None or (_is_whole(number) and number >= 0):
        return number
    raise ValueError(f"{name} must be a whole number of 0 or more, not {value!r}")


def _number(name: str, value: float | None) -> float | None:
    number = _plain(value)
    if number is None:
        return None
    if isinstance(number, (int, float)) and not isinstance(number, bool) and 0 <= number <= _MOST:
        return number
    raise ValueError(f"{name} must be a number of 0 or more, not {value!r}")


def _switch(name: str, value: object) -> bool:
    switch = _plain(value)
    if isinstance(switch, bool):
        return switch
    raise ValueError(f"{name} must be True or False, not {value!r}")


def _seconds(name: str, value: float | str | None) -> float | None:
    return _amount(name, value, TIMESPAN) if isinstance(value, str) else _number(name, value)


def _limit(wait: float | str | bool | None) -> float | None:
    """How many seconds to wait; ``None`` is not to wait."""
    plain = _plain(wait)
    if isinstance(plain, bool):
        return math.inf if plain else None
    if plain == math.inf:
        return math.inf
    return _seconds("wait", wait) or None


def _capability(capability: tuple[int, int] | None) -> tuple[int, int] | None:
    if capability is None:
        return None
    parts = [_plain(part) for part in capability] if isinstance(capability, Iterable) else []
    major, minor = parts if len(parts) == 2 else (None, None)
    if not (_is_whole(major) and _is_whole(minor) and major >= 0 and minor >= 0):
        raise ValueError(f"capability must be such as (8, 0), not {capability!r}")
    return major, minor


def _selected(requirements: Requirements, wait: float | None, *, demo: bool) -> Selected:
    from gpumon.sampling.gpu_sampler import GpuSampler
    from gpumon.scheduling.choose import Chooser
    from gpumon.scheduling.locks import Locks
    from gpumon.scheduling.select import as_variables
    from gpumon.scheduling.waiting import GpuWait, TimeLimit

    machine = open_machine(demo=demo)
    locks = Locks(None, os.environ, make=False)
    try:
        chooser = Chooser(
            requirements, os.environ, locks, machine.links, allocations=machine.allocations
        )
        with GpuSampler(machine.source) as sampler:
            waiting = GpuWait(sampler, chooser, None if wait is None else TimeLimit(wait))
            waiting.result()
            if waiting.trouble is not None:
                raise waiting.trouble
            if not waiting.verdicts:
                # The driver has not answered; this is its error.
                waiting.judge(sampler.sample(0.0))
    finally:
        locks.close()
    choice = waiting.choice
    if choice is None:
        raise NoGpuFitsError(
            chooser.refusal(waiting.verdicts),
            {
                verdict.candidate.label: verdict.refusal.sentence
                for verdict in waiting.verdicts
                if verdict.refusal is not None
            },
        )
    return Selected(
        tuple(candidate.uuid for candidate in choice.candidates),
        tuple(candidate.gpu for candidate in choice.candidates),
        choice.reason,
        as_variables(choice.candidates, waiting.gpus),
    )


def _size(name: str, size: str | int | None) -> int | None:
    bytes_ = _amount(name, size, SIZE) if isinstance(size, str) else _number(name, size)
    return None if bytes_ is None else int(bytes_)


def _amount(name: str, text: str, measure: Measure) -> float:
    """An amount with its unit, as the command line reads it."""
    try:
        amount = measure.read(text)[0]
    except QuantityError as error:
        raise ValueError(f"{name} cannot be {text!r}: {error}") from None
    if not 0 <= amount < math.inf:
        raise ValueError(f"{name} cannot be {text!r}: it is too large")
    return amount


def _names(name: str, names: str | Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    each: list[object]
    if isinstance(names, str):
        each = list(names.split(","))
    else:
        each = list(names) if isinstance(names, Iterable) else [names]
    found = [word.strip().lower() for word in each if isinstance(word, str) and word.strip()]
    if len(found) != len(each):
        raise ValueError(f"{name} must be a name, or a list of names, not {names!r}")
    return tuple(found)
