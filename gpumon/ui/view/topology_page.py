"""The matrix of GPUs and network adapters, their processors, and what its words mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpumon.model.topology import DeviceKind, Link
from gpumon.text.cells import Field, Row, fill
from gpumon.text.formatting import cell_width, fit, fit_right, printable, shortened
from gpumon.ui.view.page_layout import Fact, fact_rows, text_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpumon.model.topology import Joint, Topology, TopologyDevice

_SELF, _UNKNOWN = "X", "–"
_MOST_NAME = 16
_GAP = 2
_LABEL_WIDTH = 8

_MEANINGS = {
    Link.NVLINK: "NVLink; # is the number of links that are up between the two GPUs",
    Link.XGMI: "AMD's links between GPUs; XGMI-2 goes through one GPU between the two",
    Link.BOARD: "on one board",
    Link.SWITCH: "through at most one PCIe switch",
    Link.SWITCHES: "through several PCIe switches, but no processor",
    Link.HOST: "through a processor's PCIe host bridge",
    Link.NODE: "between PCIe host bridges of one NUMA node",
    Link.SYSTEM: "between NUMA nodes, through the link between processors",
    Link.UNKNOWN: "unknown",
}


class _Column(NamedTuple):
    """A column of the matrix."""

    heading: str
    cells: Sequence[Field]  # One for each device.
    left: bool = False  # Whether it is aligned at the left.

    @property
    def width(self) -> int:
        return max(cell_width(text) for text in (self.heading, *(text for text, _ in self.cells)))

    def field(self, index: int) -> Field:
        """The cell of a device, as wide as the column."""
        text, style = self.cells[index]
        return (fit if self.left else fit_right)(text, self.width), style

    @property
    def title(self) -> Field:
        """The heading, as wide as the column."""
        return (fit if self.left else fit_right)(self.heading, self.width), "heading"


def topology_rows(topology: Topology, width: int) -> list[Row]:
    """The matrix, the processors and the legend, every row exactly ``width`` cells.

    Columns that do not fit are below the others, again behind the names.
    """
    devices = topology.devices
    if not devices:
        return text_rows("There are no GPUs and no network adapters.", width)
    names = _Column("", [(_name(device), "strong") for device in devices], left=True)
    columns = [
        _Column(_heading(device), [_cell(joints[index]) for joints in topology.joints])
        for index, device in enumerate(devices)
    ]
    columns.append(_Column("NUMA", [_node(device) for device in devices]))
    rows: list[Row] = []
    while columns:
        count = _fitting(columns, width - names.width)
        block, columns = columns[:count], columns[count:]
        if rows:
            rows.append(fill((), width))
        shown = [names, *block]
        rows.append(_line([column.title for column in shown], width))
        rows += [
            _line([column.field(index) for column in shown], width) for index in range(len(devices))
        ]
    facts = [*_processors(devices), *_legend(topology)]
    return [*rows, fill((), width), *fact_rows(facts, width, _LABEL_WIDTH)]


def _fitting(columns: Sequence[_Column], room: int) -> int:
    """How many of the first columns fit, at least one."""
    used = 0
    for count, column in enumerate(columns):
        used += _GAP + column.width
        if used > room and count:
            return count
    return len(columns)


def _line(fields: Sequence[Field], width: int) -> Row:
    spaced: list[Field] = []
    for field in fields:
        spaced += [field, (" " * _GAP, "")]
    return fill(spaced, width)


def _name(device: TopologyDevice) -> str:
    return shortened(printable(device.name), _MOST_NAME)


def _heading(device: TopologyDevice) -> str:
    """Its name over a column, which is narrow: ``GPU0``."""
    return _name(device).replace(" ", "") if device.kind is DeviceKind.GPU else _name(device)


def _cell(joint: Joint | None) -> Field:
    if joint is None:
        return _SELF, "dim"
    return joint.label, "dim" if joint.nearest is Link.UNKNOWN else ""


def _node(device: TopologyDevice) -> Field:
    return (_UNKNOWN, "dim") if device.numa_node is None else (str(device.numa_node), "")


def _processors(devices: Sequence[TopologyDevice]) -> list[Fact]:
    """The processors of each NUMA node that has a device."""
    nodes = {device.numa_node: device.cpus for device in devices if device.numa_node is not None}
    return [
        Fact(f"NUMA {node}", f"processors {cpus or _UNKNOWN}")
        for node, cpus in sorted(nodes.items())
    ]


def _legend(topology: Topology) -> list[Fact]:
    """The meanings of the words in the matrix, the fastest connection first."""
    found = {joint.nearest for joints in topology.joints for joint in joints if joint is not None}
    if any(device.numa_node is None for device in topology.devices):
        found.add(Link.UNKNOWN)
    return [
        Fact(f"{link.label}#" if link is Link.NVLINK else link.label, _MEANINGS[link])
        for link in sorted(found)
    ]
