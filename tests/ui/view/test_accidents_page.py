"""The page of accidents shows what is known, says what is not, and since when."""

from __future__ import annotations

from msgspec.structs import replace

from gpumon.accidents import AccidentReport, report_of
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.text.formatting import cell_width
from gpumon.ui.view.accidents_page import accident_rows
from tests.build import NOON, gpu, process, snapshot
from tests.ui.view.drawing import lines_of

XID = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 31, 100, "python")
JOINED = report_of(
    XID,
    snapshot(NOON - 1, processes=(replace(process(user="chen"), name="python"),)),
    snapshot(NOON + 9),
)


def page(*reports: AccidentReport, width: int = 100, is_complete: bool = True) -> str:
    rows, owners = accident_rows(reports, 0, NOON - 3600, NOON + 60, width, is_complete=is_complete)
    lines = lines_of(rows)
    assert len(owners) == len(rows)
    assert {cell_width(line) for line in lines} == {width}
    assert all(line.isprintable() for line in lines)
    return "\n".join(line.rstrip() for line in lines)


def test_the_line_has_whose_it_was_what_left_and_what_is_gone() -> None:
    shown = page(JOINED)
    assert "XID 31" in shown
    assert shown.count("100 python of chen") == 4
    assert "≥ 24.0" in shown
    assert "ran for 1d00h" in shown


def test_what_is_not_known_is_said() -> None:
    assert (
        page(report_of(XID, None, None)._replace(accident=replace(XID, pid=None))).count(
            "not known"
        )
        == 2
    )
    assert "nobody" in page(report_of(replace(XID, pid=None), snapshot(NOON - 1, gpu()), None))


def test_an_empty_page_says_since_when_nothing_is_known() -> None:
    assert "No accident is known since" in page()
    assert "not been searched completely" in page(is_complete=False)
    rows, _ = accident_rows((), None, None, NOON, 80, is_complete=True)
    assert "Nothing is recorded yet." in "".join(text for row in rows for text, _ in row)
