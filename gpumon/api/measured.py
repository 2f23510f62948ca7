"""``@gpumon.measured``: measures each call of a function."""

from __future__ import annotations

import asyncio
import sys
import traceback
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gpumon.api.measurement import MINE, Measurement

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpumon.api.local import Gpus

    Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def measured(function: Function) -> Function: ...


@overload
def measured(
    *,
    gpus: Gpus = MINE,
    interval: float = 1.0,
    then: Callable[[Measurement], object] | None = None,
    demo: bool = False,
) -> Callable[[Function], Function]: ...


def measured(
    function: Function | None = None,
    *,
    gpus: Gpus = MINE,
    interval: float = 1.0,
    then: Callable[[Measurement], object] | None = None,
    demo: bool = False,
) -> Function | Callable[[Function], Function]:
    """Measure each call of a function, which may be ``async``.

    Args:
        function: The function.
        gpus: As in ``measure``.
        interval: As in ``measure``.
        then: Called with the measurement after each call, also after one that raised; by default
            the measurement is printed. An error in it is printed and not raised.
        demo: The simulated machine of ``gpumon --demo``.

    Raises:
        TypeError: It is a generator: measure the loop that consumes it.
        ValueError: As ``measure``.
    """
    tell = then or _print
    if function is None:
        return lambda function: _measured(function, gpus, interval, tell, demo=demo)
    return _measured(function, gpus, interval, tell, demo=demo)


def _tell(then: Callable[[Measurement], object], measurement: Measurement) -> None:
    """Hand over a measurement; what goes wrong there does not replace what was measured."""
    if not measurement.is_here:
        # A forked child comes back from the function, too.
        return
    try:
        then(measurement)
    except Exception:  # noqa: BLE001 - told, and the result of the function is kept
        traceback.print_exc()


def _print(measurement: Measurement) -> None:
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(str(measurement).encode(encoding, "replace").decode(encoding))  # noqa: T201 - asked for


def _measured(
    function: Function,
    gpus: Gpus,
    interval: float,
    then: Callable[[Measurement], object],
    *,
    demo: bool,
) -> Function:
    if isgeneratorfunction(function) or isasyncgenfunction(function):
        raise TypeError(
            f"{function.__name__} is a generator, whose end depends on its reader: measure the "
            "loop that reads it, with `with gpumon.measure()`"
        )
    if gpus is not None and not isinstance(gpus, (str, int)):
        gpus = tuple(gpus)
    # Wrong arguments are told where they stand.
    Measurement(gpus, interval, demo=demo)

    if iscoroutinefunction(function):

        @wraps(function)
        async def measured_coroutine(*arguments: Any, **named: Any) -> Any:
            measurement = Measurement(gpus, interval, demo=demo)
            # The event loop waits for no sample.
            measurement.start()
            try:
                return await function(*arguments, **named)
            finally:
                ending = asyncio.to_thread(measurement.__exit__, None, None, None)
                try:
                    # Also if this call is cancelled once more.
                    await asyncio.shield(ending)
                finally:
                    _tell(then, measurement)

        return measured_coroutine  # type: ignore[return-value] # the same signature

    @wraps(function)
    def measured_function(*arguments: Any, **named: Any) -> Any:
        measurement = Measurement(gpus, interval, demo=demo)
        try:
            with measurement:
                return function(*arguments, **named)
        finally:
            _tell(then, measurement)

    return measured_function  # type: ignore[return-value] # the same signature
