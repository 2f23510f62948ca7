"""What ``gpumon doctor`` examines for this maker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.doctor import MakerChecks, check, passed
from tests.acme import MAKER

if TYPE_CHECKING:
    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext


@check("ACME driver")
def driver(context: DiagnosticContext) -> Result | None:
    """Whether the driver has GPUs."""
    gpus = context.gpus_of(MAKER)
    return passed(f"{len(gpus)} rockets.") if gpus else None


CHECKS = MakerChecks(slots={"driver": (driver,)})
