"""Stands in for PyTorch: numbers that take part in the calls of the example."""

from __future__ import annotations


class Tensor:
    """A tensor of which only the calls matter."""

    def square(self) -> Tensor:
        """The square."""
        return self

    def mean(self) -> Tensor:
        """The mean."""
        return self

    def backward(self) -> None:
        """Compute gradients."""

    def item(self) -> float:
        """The value."""
        return 0.5


def ones(*_: int) -> Tensor:
    """A tensor of ones."""
    return Tensor()


class nn:  # noqa: N801 - PyTorch's name
    """Modules."""

    class Linear:
        """A layer."""

        def __init__(self, *sizes: int) -> None:
            assert all(sizes)

        def __call__(self, tensor: Tensor) -> Tensor:
            return tensor

        def parameters(self) -> list[Tensor]:
            """The parameters."""
            return []


class optim:  # noqa: N801 - PyTorch's name
    """Optimizers."""

    class SGD:
        """Stochastic gradient descent."""

        def __init__(self, parameters: list[Tensor], lr: float) -> None:
            assert (parameters, lr) == ([], 0.01)

        def zero_grad(self) -> None:
            """Forget the gradients."""

        def step(self) -> None:
            """Make a step."""
