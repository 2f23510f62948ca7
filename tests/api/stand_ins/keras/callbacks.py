"""The base class of the example."""


class Callback:
    """A callback."""
