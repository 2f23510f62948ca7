"""The sections of the help page that explain states: what was seen, what it means, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpumon.findings import explain, process_findings
from gpumon.ui.view.gpu_text import state_glyph
from gpumon.ui.view.help_page import HelpSection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.findings import Finding
    from gpumon.model.processes import GpuProcess
    from gpumon.recording.history import History

_MOST_PROCESSES = 8
"""The largest number of processes of a job that are judged: growth takes time to look for."""


def state_sections(name: str, history: History, findings: Iterable[Finding]) -> list[HelpSection]:
    """Explain findings, a section each.

    Args:
        name: What they are about, such as ``GPU 3``; safe to print.
        history: The history at the moment that is shown.
        findings: The findings.
    """
    sections = []
    for finding in findings:
        text = explain(history, finding)
        seen = " · ".join(fact for fact in text.seen if fact not in finding.sentence)
        entries = (
            ("seen", seen),
            ("since", (text.since or "").removeprefix("since ")),
            ("means", text.meaning),
            ("could be", "; ".join(text.causes)),
            ("to do", " ".join(text.advice)),
            ("source", text.source),
        )
        sections.append(
            HelpSection(
                f"{state_glyph(finding)} {name}: {finding.short}",
                tuple((term, about) for term, about in entries if about),
                finding.sentence if finding.sentence != finding.short else "",
                beside=False,
            )
        )
    return sections


def process_sections(history: History, processes: Iterable[GpuProcess]) -> list[HelpSection]:
    """Explain the findings of processes, such as those of a job: each kind once.

    Args:
        history: The history at the moment that is shown.
        processes: The processes.
    """
    kinds = set()
    sections = []
    for process in tuple(processes)[:_MOST_PROCESSES]:
        found = process_findings(history, process)
        new = [finding for finding in found if finding.kind not in kinds]
        kinds |= {finding.kind for finding in new}
        sections += state_sections(f"process {process.id.pid}", history, new)
    return sections
