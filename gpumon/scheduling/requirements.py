"""What somebody asks of a card, and how many of them."""

from __future__ import annotations

from msgspec import Struct

from gpumon.model.selection import ALL, GpuSelection


class Requirements(Struct, frozen=True):
    """What is asked. ``None`` asks nothing.

    Attributes:
        least: How many cards at least.
        most: ... and at most: as many as there are.
        free: Bytes of free memory, at least. Where neither this nor ``processes`` is given a card
            has to be empty: nobody computes on it, and no memory is held by nobody knows whom.
        total: Bytes of memory in all, at least.
        utilization: Percent, at most.
        temperature: Degrees Celsius, at most.
        processes: How many processes may compute on it.
        models: Parts of a product's name, lower case, one of which must be in it.
        architectures: Names of architectures, lower case, of which it must have one.
        capability: CUDA compute capability, at least.
        only: Only these cards.
        never: None of these cards; empty is no card, not all.
        mig: MIG devices in place of whole cards.
        mine_is_free: Count what this user's own processes hold as free, and them as none.
        stable: For how many seconds a card must have been like this.
    """

    least: int = 1
    most: int = 1
    free: int | None = None
    total: int | None = None
    utilization: float | None = None
    temperature: float | None = None
    processes: int | None = None
    models: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    only: GpuSelection = ALL
    never: GpuSelection = ALL
    mig: bool = False
    mine_is_free: bool = False
    stable: float | None = None

    @property
    def empty(self) -> bool:
        """Whether nobody else may be on a card."""
        return self.free is None and self.processes is None

    @property
    def number(self) -> str:
        """How many, in words: ``2 cards``, ``1 to 4 cards``, ``1 MIG device``."""
        many = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        thing = "MIG device" if self.mig else "card"
        return f"{many} {thing}{'' if self.most == 1 else 's'}"
