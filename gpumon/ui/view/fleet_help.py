"""The sections of the help page that only many hosts need."""

from __future__ import annotations

from gpumon.fleet.terms import HOST_TERMS
from gpumon.ui.view.fleet_hosts import HOST_COLUMNS
from gpumon.ui.view.help_page import HelpSection

_CELLS = (
    ("○", "a free GPU"),
    ("▁ ▇", "the level is the memory in use; the colour is the load, stronger where it is higher"),
    ("▲ ✖", "a GPU that needs attention; the state says why"),
    ("◌ ◔", "a host that is down or silent: the rest of its line was so when it last answered"),
    ("≥", "at least: a host is missing in the sum, or a GPU in that of its host"),
)


def fleet_sections() -> list[HelpSection]:
    """The cells, the filter and the columns of hosts."""
    return [
        HelpSection("A host's GPUs", _CELLS),
        HelpSection(
            "The filter of hosts",
            tuple((term.example, term.about) for term in HOST_TERMS),
            "Words match the host, its users, GPU models and states; all words and terms must "
            "match. The list of processes has the terms below, and host.",
        ),
        HelpSection("Host columns", tuple((one.label, one.about) for one in HOST_COLUMNS)),
    ]
