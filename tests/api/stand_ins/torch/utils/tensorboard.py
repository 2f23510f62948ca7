"""Stands in for TensorBoard's writer."""

from __future__ import annotations


class SummaryWriter:
    """A writer that takes numbers."""

    def __init__(self, folder: str) -> None:
        assert folder

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add a value."""
        assert tag
        float(value), int(step)
