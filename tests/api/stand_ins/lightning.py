"""Stands in for Lightning: the base class of the example."""


class Callback:
    """A callback."""
