"""How far apart two colours look, to people who see colours and to those who see fewer of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.config.themes.styles import linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.config.themes.styles import Rgb

# Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
# Deficiency (IEEE TVCG 15, 2009), table of severity 1.0, for linear RGB.
SIGHTS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "usual": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def apart(one: Rgb, other: Rgb, sight: str = "usual") -> float:
    """Distance of two colours in OKLab (Ottosson 2020); about 0.02 is just noticeable."""
    pairs = zip(_oklab(one, sight), _oklab(other, sight), strict=True)
    return float(sum((a - b) ** 2 for a, b in pairs) ** 0.5)


def _oklab(colour: Rgb, sight: str) -> list[float]:
    light = [
        min(1.0, max(0.0, part))
        for part in _times(SIGHTS[sight], [linear(part) for part in colour])
    ]
    cones = _times(_TO_CONES, light)
    return _times(_TO_LAB, [cone ** (1 / 3) for cone in cones])


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


_TO_CONES = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
