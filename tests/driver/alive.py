"""Lets the values of simulated cards move, each in a rhythm of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from .models import Wave

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from .driver import Card


def enliven(card: Card, number: int) -> None:
    """Makes the card work, each in a rhythm of its own."""
    phase, period = number * 0.13, 7.0 + number
    load = 0.55 + 0.05 * (number % 8)
    limit = card.power_limit_enforced or 40_000
    moving = {
        "utilization_gpu": Wave(100 * load, 30 * (1 - load), period, phase),
        "utilization_memory": Wave(50 * load, 10, period, phase),
        "sm_active": Wave(85 * load, 8 * load, period, phase),
        "sm_occupancy": Wave(40 * load, 5 * load, period, phase),
        "tensor_active": Wave(45 * load, 6 * load, period, phase),
        "dram_active": Wave(55 * load, 8 * load, period, phase),
        "fp32_active": Wave(12 * load, 3 * load, period, phase),
        "power_usage": Wave(limit * load, limit * 0.1, period, phase),
        "power_instant": Wave(limit * load, limit * 0.15, period / 3, phase),
        "temperature": Wave(55 + number % 8, 4, period * 5, phase),
        "temperature_memory": Wave(62 + number % 8, 4, period * 5, phase),
        "clock_sm": Wave(0.9 * (card.clock_sm_max or 0), 40, period / 2, phase),
        "clock_graphics": Wave(0.9 * (card.clock_graphics_max or 0), 40, period / 2, phase),
        "pcie_tx": Wave(2_000_000, 1_500_000, period / 2, phase),
        "pcie_rx": Wave(5_000_000, 4_000_000, period / 2, phase),
        "nvlink_tx": Wave(80_000_000, 40_000_000, period / 2, phase),
        "nvlink_rx": Wave(80_000_000, 40_000_000, period / 2, phase + 0.1),
        "fan_speed": Wave(55, 10, period * 5, phase),
    }
    for metric, wave in moving.items():
        if card.get(metric) is not None:
            card.set(metric, wave)
    card.pstate = 0
    card.clock_event_reasons = 0x4


def stir(cards: Sequence[Card], dice: random.Random) -> None:
    """Gives the processes another utilisation."""
    for card in cards:
        card.processes = [
            owner if owner.sm is None else replace(owner, sm=dice.randint(0, 40))
            for owner in card.processes
        ]
