"""The page of the topology, which is read on another thread when the page opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.ui.background import run_in_thread
from gpumon.ui.screens.page import SCROLL, PageScreen
from gpumon.ui.view.key_names import FooterKey, footer_key
from gpumon.ui.view.network_view import nic_rows
from gpumon.ui.view.page_layout import Section, page_rows, text_rows
from gpumon.ui.view.topology_page import topology_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.topology import Topology
    from gpumon.text.cells import Row
    from gpumon.ui.workspace import Workspace

_NOT_RECORDED = "The topology is not recorded."
_READING = "reading …"


class TopologyScreen(PageScreen):
    """How GPUs, network adapters and processors are connected."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self._topology: Topology | None = None
        self._asked_of: tuple[str, ...] | None = None
        self._reading = False

    @property
    def heading(self) -> str:
        """See ``PageScreen.heading``."""
        return "topology"

    @property
    def footer_keys(self) -> Sequence[FooterKey]:
        """See ``PaintedScreen.footer_keys``."""
        return (footer_key("back"), footer_key("help"), SCROLL)

    def follow(self) -> None:
        """Read the topology, once for the same GPUs."""
        latest = self._history.latest
        if latest is None or self._reading or self._viewed_time.is_past:
            return
        gpus = latest.gpus
        uuids = tuple(gpu.uuid for gpu in gpus)
        if uuids == self._asked_of:
            return
        self._asked_of, self._reading = uuids, True
        machine = self._viewed_time.session.machine
        run_in_thread(
            self.app, lambda: machine.topology(gpus), self._show_topology, name="gpumon-topology"
        )

    def _show_topology(self, topology: Topology | None) -> None:
        self._topology, self._reading = topology, False
        if self.is_attached:
            self.rebuild()

    def page(self, width: int) -> list[Row]:
        """See ``PageScreen.page``."""
        sections = [Section("", self._matrix)]
        latest = self._history.latest
        if latest is not None:
            sections.append(
                Section(
                    "Network adapters",
                    lambda size: nic_rows(latest.host, latest.gpus, latest.time, size),
                )
            )
        return page_rows(sections, width)

    def _matrix(self, width: int) -> list[Row]:
        if self._viewed_time.is_past:
            return text_rows(f"{_NOT_RECORDED} Go back to now to see it.", width)
        if self._topology is not None:
            return topology_rows(self._topology, width)
        if self._reading or self._asked_of is None:
            return text_rows(_READING, width, "dim")
        host = self._viewed_time.session.machine.name
        if host is None:
            return text_rows(_NOT_RECORDED, width)
        return text_rows(
            f"Only the machine itself can show its topology: ssh {host} gpumon topo", width
        )
