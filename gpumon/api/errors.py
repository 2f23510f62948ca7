"""The errors of the functions for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.makers.source import SourceError as GpuError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GpuError", "NoGpuFitsError"]


class NoGpuFitsError(Exception):
    """Too few GPUs meet the requirements.

    Attributes:
        sentence: What is missing.
        reasons: Why each GPU does not fit, by its name: ``GPU 0``; a GPU that fits has none.
    """

    def __init__(self, sentence: str, reasons: Mapping[str, str]) -> None:
        super().__init__("\n".join((sentence, *(f"{gpu}: {why}" for gpu, why in reasons.items()))))
        self.sentence = sentence
        self.reasons = reasons

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.sentence, dict(self.reasons))
