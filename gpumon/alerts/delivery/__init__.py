"""Tells notices in the ways of their alerts: beside everything else, and in bounded time."""

from gpumon.alerts.delivery.deliveries import Deliveries, TerminalWays

__all__ = ["Deliveries", "TerminalWays"]
