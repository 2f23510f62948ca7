"""How the ending of processes is told: what matters first, and nothing of it cut off."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.host.process_host import ProcessStatus, Target
from gpumon.kill.outcome import MemoryReclaimed, Outcome, TargetOutcome, TerminationReport
from gpumon.model.processes import HoldReason, ProcessId, UnlistedHolder
from gpumon.ui.view.kill_report import report_rows, summary_text
from tests.build import GIB
from tests.ui.view.drawing import text_of

TERM = 15
WIDTH = 100


def fate(
    pid: int, sentence: str = "", outcome: Outcome = Outcome.ENDED, **changes: object
) -> TargetOutcome:
    target = Target(ProcessId(pid, 7), 1001)
    return TargetOutcome(target, outcome, signal=TERM, sentence=sentence, **changes)  # type: ignore[arg-type]  # keywords pass through


def zombie(pid: int, parent: int = 7) -> TargetOutcome:
    sentence = f"{pid} has ended; its parent {parent} (sh) has not reaped it yet"
    return fate(pid, sentence, status=ProcessStatus("Z", None, ProcessId(parent, 1), "sh"))


def waiting(pid: int) -> TargetOutcome:
    return fate(pid, f"{pid} goes on 6s after TERM", Outcome.WAITING)


def back(
    now: int, others: int | None = 0, remaining: tuple[UnlistedHolder, ...] = ()
) -> MemoryReclaimed:
    return MemoryReclaimed("GPU-0", 0, 30 * GIB, 40 * GIB, now, others, remaining, settled=True)


def holder(why: str = "its parent ended") -> UnlistedHolder:
    return UnlistedHolder(ProcessId(9, 7), ("GPU-0",), HoldReason.ORPHAN, why, name="py")


def told(*reports: TerminationReport, room: int = 8) -> list[str]:
    rows = report_rows(reports, WIDTH, room)
    assert len(rows) <= room
    return [text_of(row).strip() for row in rows]


def report(
    *outcomes: TargetOutcome, memory: tuple[MemoryReclaimed, ...] = (), unlogged: str = ""
) -> TerminationReport:
    return TerminationReport(TERM, 6.0, outcomes, memory, unlogged=unlogged)


def test_the_sum_and_the_cards_stay_where_not_every_process_has_room() -> None:
    memory = (back(22 * GIB, remaining=(holder(),)),)
    lines = told(report(*map(waiting, range(100, 110)), memory=memory, unlogged="no log"))
    assert lines[0].startswith("…  TERM sent 6s ago · 0 of 10 ended")
    assert [line.split()[1] for line in lines[1:5]] == ["100", "101", "102", "103"]
    assert lines[5] == "and 6 more"
    assert "12.0 GiB stay on GPU 0: 9 (py of unknown) still holds the GPU" in lines[6]
    assert lines[7] == "!  no log"


def test_every_case_keeps_its_sum_and_the_newest_its_processes() -> None:
    older, newer = report(*map(waiting, range(5))), report(*map(waiting, range(10, 15)))
    lines = told(older, newer)
    assert [line.split()[0] for line in lines] == ["…", "and", "…", "!", "!", "!", "!", "!"]
    assert lines[1] == "and 5 more"


def test_a_long_line_goes_on_where_there_is_room() -> None:
    why = "its parent has ended, and so has 44790, which led its process group; init took it over"
    ended = report(fate(1), memory=(back(22 * GIB, remaining=(holder(why),)),))
    lines = told(ended)
    assert len(lines) == 3
    assert " ".join(lines).endswith(why)
    cut = told(ended, room=1)
    assert cut[0].startswith("!  1 of 1 ended, 18.0 GiB came back on GPU 0, but 12.0 GiB stay on")
    assert cut[0].endswith("…")


def test_the_oldest_cases_go_last_of_all() -> None:
    lines = told(*(report(fate(pid), memory=(back((pid + 1) * GIB),)) for pid in range(10)), room=3)
    assert [line.split()[5] for line in lines] == ["32.0", "31.0", "30.0"]


def test_zombies_of_one_parent_share_a_line() -> None:
    lines = told(report(*map(zombie, (1, 2, 3)), zombie(4, parent=8)))
    assert lines[1:] == [
        "!  3 have ended; their parent 7 (sh) has not reaped them yet",
        "!  4 has ended; its parent 8 (sh) has not reaped it yet",
    ]


def test_those_who_are_refused_for_one_reason_share_a_line() -> None:
    def chens(pid: int) -> TargetOutcome:
        words = f"{pid} is chen's, not yours: ask chen, or sudo kill -TERM {pid}"
        return fate(pid, words, Outcome.REFUSED)

    def hidden(pid: int) -> TargetOutcome:
        return fate(pid, f"{pid} is hidden from you: root sees it", Outcome.REFUSED)

    assert told(report(*map(chens, (11, 12, 13)), *map(hidden, (20, 21)), fate(30))) == [
        "✓  1 of 1 ended",
        "!  3 are chen's, not yours: ask chen, or sudo kill -TERM 11 12 13",
        "!  2 are hidden from you: root sees it",
    ]
    assert told(report(chens(11)))[1] == (
        "!  11 is chen's, not yours: ask chen, or sudo kill -TERM 11"
    )
    readonly = [fate(pid, "gpumon runs with --readonly", Outcome.REFUSED) for pid in (1, 2)]
    assert told(report(*readonly)) == ["!  TERM was not sent", "!  gpumon runs with --readonly"]


NONE_BACK = replace(back(40 * GIB), listed=(838,))
SEVERAL = replace(NONE_BACK, listed=(1, 2, 3, 4, 5))
STAY = "30.0 GiB stay on GPU 0:"
STILL_LISTED = "the driver still lists 1, 2, 3 and 2 more, which have ended"
ALL_BACK = "30.0 GiB came back on GPU 0"
UNKNOWN_SHARE = "(the share of other processes is not known)"
ELSEWHERE = replace(back(10 * GIB), gpu_uuid="GPU-1", gpu_index=1)


@pytest.mark.parametrize(
    ("memory", "sign", "said"),
    [
        ([NONE_BACK], "!", f"but {STAY} the driver still lists 838, which has ended"),
        ([SEVERAL, ELSEWHERE], "!", f"30.0 GiB came back on GPU 1, but {STAY} {STILL_LISTED}"),
        ([back(40 * GIB)], "!", f"but {STAY} no process was found that holds them"),
        # Nothing is said to have come back where that is not known.
        ([replace(back(0), now=None)], "!", "whether memory came back on GPU 0 is not known"),
        ([back(10 * GIB, others=None)], "✓", f"GPU 0 has 30.0 GiB less in use {UNKNOWN_SHARE}"),
        ([back(14 * GIB, 4 * GIB)], "✓", f"{ALL_BACK} (others took 4.0 GiB meanwhile)"),
        ([back(2 * GIB, -8 * GIB)], "✓", f"{ALL_BACK} (others gave back 8.0 GiB meanwhile)"),
        ([back(10 * GIB, 1024)], "✓", ALL_BACK),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_became_of_the_memory_is_told_with_the_sum(
    memory: list[MemoryReclaimed], sign: str, said: str
) -> None:
    ended = report(fate(1), memory=tuple(memory))
    assert " ".join(told(ended)) == f"{sign}  1 of 1 ended, {said}"
    assert summary_text(ended) == f"1 of 1 ended, {said}"


def test_more_than_there_was_cannot_stay() -> None:
    """Somebody whom no list names has taken memory: how much of it is whose is not known."""
    assert back(50 * GIB).missing == 30 * GIB
