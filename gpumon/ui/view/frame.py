"""What a frame of the dashboard is drawn from, and the cache of what was drawn before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpumon.ui.view.chart_series import large_graph, small_graph, window_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from typing_extensions import TypeVar, TypeVarTuple, Unpack

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.dashboard_view import View

    _Args = TypeVarTuple("_Args")
    _Made = TypeVar("_Made")


class Frame(NamedTuple):
    """What the parts of a frame have in common."""

    memo: Memo  # Caches drawn parts.
    snapshot: Snapshot  # With GPUs.
    history: History  # The values of the graphs.
    states: Mapping[str, Finding]  # The state of each GPU and MIG device, by UUID.
    view: View  # The view within bounds.
    width: int  # Cells.

    @property
    def graph(self) -> ChartSeries[Gpu]:
        """What the large graphs show first."""
        return large_graph(self.view.graph)

    @property
    def small_graph(self) -> ChartSeries[Gpu]:
        """What the small graph of each GPU shows."""
        return small_graph(self.view.graph, self.snapshot.gpus)

    @property
    def seconds(self) -> float:
        """The time that the charts show."""
        return window_seconds(self.view.window, self.history, self.snapshot.time)


class Memo:
    """Caches the newest result of each function, with its arguments or a key.

    One result per function bounds the memory. Functions that are called for several GPUs or
    processes use a ``part`` for each.
    """

    __slots__ = ("_made", "_parts")

    def __init__(self) -> None:
        # Any function may be a key; the signatures below give each result its type.
        self._made: dict[Callable[..., Any], tuple[object, Any]] = {}
        self._parts: dict[Hashable, Memo] = {}

    def __call__(self, make: Callable[[Unpack[_Args]], _Made], *args: Unpack[_Args]) -> _Made:
        """Return the function's result; call it only if an argument has changed."""
        known = self._made.get(make)
        if known is None or known[0] != args:
            known = self._made[make] = (args, make(*args))
        made: _Made = known[1]
        return made

    def by(
        self, key: object, make: Callable[[Unpack[_Args]], _Made], *args: Unpack[_Args]
    ) -> _Made:
        """Return the function's result; call it only if the key has changed."""
        known = self._made.get(make)
        if known is None or known[0] != key:
            known = self._made[make] = (key, make(*args))
        made: _Made = known[1]
        return made

    def newest(self, make: Callable[..., _Made]) -> _Made | None:
        """Return the function's newest result, whatever its arguments were."""
        known = self._made.get(make)
        return None if known is None else known[1]

    def part(self, name: Hashable) -> Memo:
        """Return the memo of one item among several, such as a GPU."""
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = Memo()
        return part

    def keep(self, names: Iterable[Hashable]) -> None:
        """Forget all other parts."""
        self._parts = {name: self._parts[name] for name in names if name in self._parts}
