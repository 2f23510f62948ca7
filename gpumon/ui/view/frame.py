"""What a frame of the dashboard is drawn from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.ui.view.chart_series import SMALL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpumon.findings import Finding
    from gpumon.model.snapshot import Gpu, Snapshot
    from gpumon.recording.history import History
    from gpumon.ui.view.chart_series import ChartSeries
    from gpumon.ui.view.memo import Memo
    from gpumon.ui.view.view import View


class Frame(NamedTuple):
    """What the parts of a frame have in common.

    Attributes:
        memo: Caches drawn parts.
        snapshot: The snapshot, with GPUs.
        history: The values of the graphs.
        states: The state of each GPU and MIG device, by UUID.
        view: The view within bounds.
        width: Cells.
    """

    memo: Memo
    snapshot: Snapshot
    history: History
    states: Mapping[str, Finding]
    view: View
    width: int

    @property
    def graph(self) -> ChartSeries[Gpu]:
        """What the small graph of each GPU shows."""
        return SMALL[self.view.graph]
