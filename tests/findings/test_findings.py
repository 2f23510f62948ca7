"""What gpumon says of a card: each claim with its evidence, and none that was not seen."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from _pytest.mark import ParameterSet

from gpumon.findings import (
    BRIEF_CELLS,
    SHORT_CELLS,
    Account,
    Finding,
    FindingKind,
    Severity,
    Thresholds,
    conditions,
    explain,
    gpu_findings,
    gpu_state,
    memory_account,
)
from gpumon.findings.registry import GPU_RULES
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.error_codes import error_code
from gpumon.model.processes import GpuProcess, HolderScan, HoldReason, ProcessId, UnlistedHolder
from gpumon.model.snapshot import Gpu, GpuStatus, Unknown
from gpumon.recording.history import History
from gpumon.text.formatting import cell_width
from tests.build import GIB, NOON, gpu, process, snapshot

MINUTE, HOUR = 60.0, 3600.0


pytestmark = pytest.mark.usefixtures("utc")


def see(
    history: History,
    seconds: float,
    card: Gpu,
    *processes: GpuProcess,
    step: float = 1.0,
    processes_at: float | None = 0.0,
    in_container: bool | None = None,
    holders: HolderScan | None = None,
) -> Finding:
    """The state of a card that has stayed the same for so long, after what was seen before."""
    start = NOON if history.latest is None else history.now + step
    for number in range(int(seconds / step) + 1):
        moment = start + number * step
        seen = snapshot(
            moment, card, processes=processes, processes_at=processes_at, in_container=in_container
        )
        history.add(msgspec.structs.replace(seen, holders=holders))
    return gpu_state(history, card)


def looked_before() -> History:
    """A history in which a card was busy and well."""
    history = History(conditions())
    see(history, 5, gpu(utilization_gpu=60, power_draw=500.0), process())
    return history


@pytest.fixture
def history() -> History:
    return looked_before()


def looked_rarely() -> History:
    """Likewise, at a sample in five minutes."""
    history = History(conditions())
    see(history, 900, gpu(utilization_gpu=60, power_draw=500.0), process(), step=300)
    return history


def kinds(history: History, card: Gpu) -> list[FindingKind]:
    return [finding.kind for finding in gpu_findings(history, card)]


# Free, working, unknown


def test_a_card_without_processes_is_free_though_the_driver_holds_a_little() -> None:
    found = see(History(conditions()), 1, gpu(memory_used=int(0.6 * GIB)))
    assert (found.kind, found.short, found.severity) == (FindingKind.FREE, "free", Severity.GOOD)
    assert found.evidence == ("no process", "memory used 0.6 GiB", "utilisation 0 %")


def test_a_card_in_use_is_busy_and_quiet() -> None:
    found = see(History(conditions()), 1, gpu(utilization_gpu=47), process(memory_used=3 * GIB))
    assert (found.kind, found.short) == (FindingKind.WORKING, "busy")
    assert found.severity is Severity.QUIET
    assert found.sentence.startswith("in use: 47 % busy")


def stuck_card(**changes: object) -> Gpu:
    return gpu(**{"utilization_gpu": 100, "power_draw": 121.0, "memory_used": 74 * GIB, **changes})


def large(memory_used: float) -> Gpu:
    return gpu(memory_used=int(memory_used * GIB), memory_total=180 * GIB, memory_free=178 * GIB)


NO_ERROR = {
    **dict.fromkeys(("remapped_rows_pending", "remapped_rows_failure"), False),
    "ecc_uncorrected_volatile": 0,
    "ecc_corrected_volatile": 9,
    "retired_pages_pending": False,
    "recovery_action": "None",
}
NO_MEMORY = dict.fromkeys(("memory_used", "memory_free", "memory_total"))
HOLDER = process(memory_used=2 * GIB)
BIG_HOLDER = process(memory_used=74 * GIB)


def judged(
    name: str, kind: FindingKind, card: Gpu, *holders: GpuProcess, seconds: float = 60
) -> ParameterSet:
    return pytest.param(card, holders, seconds, kind, id=name)


@pytest.mark.parametrize(
    ("card", "holders", "seconds", "kind"),
    [
        judged("a driver's share of large memory", FindingKind.FREE, large(1.7)),
        judged("more than its share", FindingKind.UNATTRIBUTED, large(2)),
        judged("host memory", FindingKind.FREE, gpu(memory_unified=True, **NO_MEMORY)),
        judged(
            *("full host memory", FindingKind.FREE),
            gpu(memory_unified=True, memory_used=119 * GIB, memory_free=GIB),
        ),
        judged("no error", FindingKind.FREE, gpu(**NO_ERROR)),
        judged("far from its slowdown", FindingKind.FREE, gpu(temperature_gpu=86)),
        judged(
            *("far from its margin", FindingKind.FREE),
            gpu(temperature_gpu=86, temperature_slowdown=None, temperature_margin=6),
        ),
        judged(*("warm", FindingKind.FREE), gpu(temperature_gpu=84, temperature_slowdown=None)),
        judged("heat unknown", FindingKind.FREE, gpu(temperature_gpu=None)),
        judged("unknown", FindingKind.UNKNOWN, gpu(utilization_gpu=None, memory_used=None)),
        judged(
            *("software power cap", FindingKind.WORKING),
            *(gpu(utilization_gpu=99, power_draw=690.0, clock_event_reasons=0x4), HOLDER),
            seconds=300,
        ),
        *(
            judged(name, FindingKind.WORKING, card, BIG_HOLDER, seconds=1200)
            for name, card in {
                "power unknown": stuck_card(power_draw=None),
                "power limit unknown": stuck_card(power_limit=None),
                "utilisation unknown": stuck_card(utilization_gpu=None),
            }.items()
        ),
    ],
)
def test_a_gpu_is_called_no_more_than_was_seen(
    card: Gpu, holders: tuple[GpuProcess, ...], seconds: float, kind: FindingKind
) -> None:
    assert see(looked_before(), seconds, card, *holders).kind is kind


def test_the_first_sample_tells_what_it_sees_as_of_now() -> None:
    hold = process(user="bo", memory_used=GIB)
    stray = see(History(conditions()), 0, gpu(memory_used=32 * GIB, utilization_gpu=9), hold)
    assert (stray.kind, stray.severity) == (FindingKind.UNATTRIBUTED, Severity.NOTE)
    assert (stray.short, stray.brief) == ("31G unattributed", "31G unattr")
    assert "at this moment" in stray.sentence
    rest = see(History(conditions()), 0, gpu(memory_used=GIB), hold)
    assert (rest.kind, rest.severity) == (FindingKind.IDLE, Severity.NOTE)
    assert (rest.short, rest.brief) == ("0% now", "0% now")
    assert rest.sentence == "0 % busy at this moment while bo holds 1.0 GiB"


def test_what_held_from_the_first_sample_on_is_told_until_it_has_lasted() -> None:
    hold = process(user="bo", memory_used=GIB)
    history = History(conditions())
    for seconds, severity in ((0, Severity.NOTE), (5, Severity.NOTE), (9, Severity.WARNING)):
        found = see(history, seconds, gpu(memory_used=32 * GIB, utilization_gpu=9), hold)
        assert (found.kind, found.severity) == (FindingKind.UNATTRIBUTED, severity)


@pytest.mark.parametrize(
    ("card", "words"),
    [
        (gpu(utilization_gpu=1), "busy"),
        (gpu(memory_used=2 * GIB), "busy"),
        (gpu(memory_used=None), "unknown"),
        (gpu(unknown={"processes": Unknown.NOT_SUPPORTED}), "unknown"),
        (gpu(compute_mode="Prohibited"), "no computing allowed"),
    ],
    ids=["at work", "memory in use", "memory unknown", "processes unknown", "prohibited"],
)
def test_a_card_is_not_called_free_on_less_than_all_the_facts(card: Gpu, words: str) -> None:
    found = see(looked_before(), 1, card)
    assert (found.kind, found.short) == (FindingKind.WORKING, words)
    assert cell_width(found.brief) <= BRIEF_CELLS


def test_a_card_whose_processes_rest_for_a_moment_stays_busy(history: History) -> None:
    assert see(history, 1, gpu(utilization_gpu=40), process()).short == "busy"
    assert see(history, 1, gpu(utilization_gpu=0), process()).short == "busy"


def test_a_card_is_not_called_free_before_its_processes_were_listed() -> None:
    assert see(History(conditions()), 1, gpu(), processes_at=None).kind is FindingKind.WORKING


def test_a_desktop_leaves_its_card_free_and_a_renderer_without_a_display_does_not() -> None:
    desktop = process(type_="G", memory_used=2 * GIB)
    drawn = {"memory_used": 2 * GIB, "memory_reserved": GIB // 2, "utilization_gpu": 7}
    found = see(looked_before(), 300, gpu(**drawn, display_active=True), desktop)
    assert found.kind is FindingKind.FREE
    assert found.sentence == (
        "free: nobody computes on it (1 process, drawing only); utilisation 7 %"
    )
    assert see(looked_before(), 300, gpu(**drawn), desktop).kind is FindingKind.WORKING
    # A display server has a little of every card that it finds.
    server = process(type_="G", memory_used=4 * 2**20)
    assert see(looked_before(), 300, gpu(memory_reserved=0, memory_used=0), server).kind is (
        FindingKind.FREE
    )


def test_a_sliced_card_is_judged_by_memory_and_processes_and_says_so() -> None:
    card = gpu(mig_mode=True, utilization_gpu=None)
    found = see(History(conditions()), 1, card)
    assert found.kind is FindingKind.FREE
    assert "utilisation is not reported" in found.sentence
    used = gpu(mig_mode=True, utilization_gpu=None, memory_used=2 * GIB)
    hold = process(memory_used=2 * GIB)
    assert see(History(conditions()), 300, used, hold).kind is FindingKind.WORKING


# Busy, and nobody listed


def test_work_without_a_listed_process_is_said_to_be_nobodys_that_is_listed() -> None:
    busy = gpu(utilization_gpu=60, memory_used=0)
    found = see(History(conditions()), 0, busy)
    assert (found.kind, found.severity) == (FindingKind.BUSY_UNLISTED, Severity.NOTE)
    assert found.short == "busy, by nobody listed"
    assert found.sentence == "60 % busy, by nobody that the driver lists, at this moment"


def test_in_a_container_the_work_of_others_is_not_visible() -> None:
    found = see(History(conditions()), 30, gpu(utilization_gpu=60), in_container=True)
    assert found.short == "busy, by nobody visible here"
    assert found.sentence.startswith("60 % busy, by nobody visible from this container, for at")


def test_the_last_second_of_a_job_that_ended_is_not_said_to_be_nobodys(history: History) -> None:
    assert see(history, 5, gpu(utilization_gpu=60)).kind is FindingKind.WORKING
    assert see(history, 6, gpu(utilization_gpu=60)).kind is FindingKind.BUSY_UNLISTED
    assert see(history, 0, gpu()).kind is FindingKind.FREE


@pytest.mark.parametrize(
    "unknown", [Unknown.NO_PERMISSION, Unknown.NOT_SUPPORTED], ids=lambda reason: reason.value
)
def test_where_processes_are_not_listed_nothing_is_said_of_who_works(unknown: Unknown) -> None:
    card = gpu(utilization_gpu=60, unknown={"processes": unknown})
    found = see(History(conditions()), 60, card)
    assert found.kind is FindingKind.WORKING
    assert found.sentence.endswith("processes unknown")


# Idle


def test_an_idle_card_names_who_holds_it_and_since_when(history: History) -> None:
    hold = process(memory_used=43 * GIB, user="bo"), process(2, memory_used=GIB, user="bo")
    card = gpu(memory_used=44 * GIB)
    found = see(history, 3 * HOUR + 12 * MINUTE, card, *hold, step=10)
    assert (found.kind, found.severity) == (FindingKind.IDLE, Severity.NOTE)
    assert (found.short, found.brief, found.since) == ("idle 3h12m", "idle 3h", NOON + 15)
    assert found.sentence == "idle for 3 h 12 m while bo holds 44.0 GiB"


def test_an_explanation_says_what_was_seen_since_when_and_what_else_it_may_be(
    history: History,
) -> None:
    state = see(history, 120, gpu(), process(memory_used=8 * GIB))
    told = explain(history, state)
    assert (told.since, told.seen) == ("since 12:00, for 2 m", state.evidence)
    assert "notebook" in told.causes[0]


def test_a_moment_of_work_ends_idleness(history: History) -> None:
    see(history, 300, gpu(), process())
    see(history, 0, gpu(utilization_gpu=1), process())
    assert see(history, 30, gpu(), process()).kind is FindingKind.WORKING


def test_a_card_that_was_idle_at_the_first_look_was_so_at_least_since() -> None:
    found = see(History(conditions()), 4 * MINUTE, gpu(), process(user="bo"))
    assert (found.short, found.brief) == ("idle ≥4m", "idle ≥4m")
    assert "at least 4 m (since gpumon started)" in found.sentence


def test_what_was_before_a_gap_is_not_claimed(history: History) -> None:
    see(history, 300, gpu(), process())
    see(history, 60, gpu(utilization_gpu=None), process())
    found = see(history, 120, gpu(), process())
    assert found.short == "idle ≥2m"
    assert "at least 2 m (unknown before that)" in found.sentence


def test_an_unknown_utilisation_is_never_idle(history: History) -> None:
    assert see(history, 300, gpu(utilization_gpu=None), process()).kind is FindingKind.WORKING
    see(history, 300, gpu(), process())
    assert gpu_state(history, gpu()).kind is FindingKind.IDLE
    assert see(history, 1, gpu(utilization_gpu=None), process()).kind is FindingKind.WORKING


def test_who_holds_most_is_named_and_the_others_counted() -> None:
    hold = (
        process(1, memory_used=GIB, user="ann"),
        process(2, memory_used=9 * GIB, user="bo"),
        process(3, memory_used=GIB, user="chen"),
    )
    found = see(looked_before(), 2 * MINUTE, gpu(memory_used=11 * GIB), *hold)
    assert found.short == "idle 2m"
    assert "while bo +2 holds" in found.sentence


def test_who_came_to_an_idle_card_is_not_blamed_for_the_time_before(history: History) -> None:
    see(history, 2 * HOUR, gpu(), process(1, user="ann"), step=10)
    came = history.now + 1
    late = process(2, user="bo")
    assert see(history, 59, gpu(), late).kind is FindingKind.WORKING
    found = see(history, 60, gpu(), late)
    assert found.short == "idle 2m"
    assert "while bo holds" in found.sentence
    assert found.since == came


def test_a_process_that_comes_over_from_another_card_is_not_blamed_either(history: History) -> None:
    see(history, 600, gpu(), process(gpus=(1,)))
    came = history.now + 1
    assert see(history, 90, gpu(), process(gpus=(0, 1))).since == came


def test_a_holder_that_is_not_visible_here_is_not_given_a_name() -> None:
    hidden = process(user=None, visible=False, started_at=None)
    found = see(looked_before(), 5 * MINUTE, gpu(), hidden)
    assert found.short == "idle 5m"
    assert "a process not visible here" in found.sentence


def test_idleness_rests_on_ten_samples_however_long_they_took() -> None:
    history = looked_rarely()
    assert see(history, 8 * 300, gpu(), process(), step=300).kind is FindingKind.WORKING
    found = see(history, 0, gpu(), process(), step=300)
    assert found.kind is FindingKind.IDLE
    assert found.evidence[0] == "utilisation 0 % in all 10 samples"


def test_who_came_late_is_judged_by_the_samples_since() -> None:
    history = looked_rarely()
    see(history, 20 * 300, gpu(), process(1, user="ann"), step=300)
    late = process(2, user="bo")
    assert see(history, 8 * 300, gpu(), late, step=300).kind is FindingKind.WORKING
    found = see(history, 0, gpu(), late, step=300)
    assert found.short == "idle 45m"
    assert found.evidence[0] == "utilisation 0 % in all 10 samples"


# Full


def test_a_card_with_less_than_a_twentieth_free_is_full() -> None:
    busy = process(memory_used=77 * GIB)
    full = gpu(utilization_gpu=90, memory_used=77 * GIB, memory_free=3 * GIB)
    found = see(looked_before(), 1, full, busy)
    assert (found.kind, found.short) == (FindingKind.FULL, "full")
    assert found.sentence == "full: 3.0 of 80.0 GiB are free"
    room = gpu(utilization_gpu=90, memory_used=76 * GIB, memory_free=4 * GIB)
    assert see(looked_before(), 1, room, busy).kind is FindingKind.WORKING


def test_a_full_card_that_idles_says_who_holds_it() -> None:
    full = gpu(memory_used=78 * GIB, memory_free=2 * GIB)
    history = looked_before()
    see(history, 300, full, process(memory_used=78 * GIB))
    assert kinds(history, full) == [FindingKind.IDLE, FindingKind.FULL]


# Hot and throttled


def test_a_card_slowed_by_heat_says_by_what_and_for_how_long(history: History) -> None:
    card = gpu(utilization_gpu=97, temperature_gpu=86, clock_event_reasons=0x24)
    found = see(history, 4 * MINUTE, card, process())
    assert (found.kind, found.severity) == (FindingKind.HOT, Severity.WARNING)
    assert (found.short, found.since) == ("hot: SW thermal 4m", NOON + 6)
    assert "86 °C" in found.sentence
    assert "clock event reasons: SW thermal" in found.evidence


@pytest.mark.parametrize(
    ("card", "short"),
    [
        (gpu(temperature_gpu=87, temperature_slowdown=92), "hot: 87 °C, slows at 92 °C"),
        (
            gpu(temperature_gpu=60, temperature_slowdown=None, temperature_margin=5),
            "hot: 60 °C, margin 5 °C",
        ),
        (gpu(temperature_gpu=80, temperature_margin=-1), "hot: 80 °C, margin -1 °C"),
        (gpu(temperature_gpu=85, temperature_slowdown=None), "hot: 85 °C"),
    ],
    ids=["slowdown", "margin", "past its margin", "neither"],
)
def test_a_card_close_to_slowing_down_is_hot(card: Gpu, short: str) -> None:
    assert see(looked_before(), 1, card, process()).short == short


def fault(
    kind: FindingKind,
    short: str,
    brief: str,
    severity: Severity = Severity.WARNING,
    **changes: object,
) -> ParameterSet:
    return pytest.param(gpu(**changes), kind, severity, short, brief, id=short)


@pytest.mark.parametrize(
    ("card", "kind", "severity", "short", "brief"),
    [
        fault(
            *(FindingKind.MEMORY_ERRORS, "1 uncorrected ECC error", "ECC errors"),
            ecc_uncorrected_volatile=1,
        ),
        fault(
            *(FindingKind.MEMORY_ERRORS, "2 uncorrected ECC errors", "ECC errors"),
            ecc_uncorrected_volatile=2,
        ),
        fault(
            *(FindingKind.MEMORY_ERRORS, "row remap pending: reset", "reset!"),
            remapped_rows_pending=True,
        ),
        fault(
            *(FindingKind.MEMORY_ERRORS, "page retirement pending: reset", "reset!"),
            retired_pages_pending=True,
        ),
        fault(
            *(FindingKind.MEMORY_ERRORS, "row remap failed: replace GPU", "bad memory"),
            Severity.CRITICAL,
            remapped_rows_failure=True,
            ecc_uncorrected_volatile=2,
        ),
        *(
            fault(FindingKind.RECOVERY, f"driver asks for: {action}", brief, recovery_action=action)
            for action, brief in {
                "Reset": "reset!",
                "Reboot": "reboot!",
                "Drain P2P": "drain!",
                "Drain and Reset": "reset!",
                "unknown (77)": "recover!",
            }.items()
        ),
    ],
)
def test_a_fault_is_said_in_two_lengths_and_the_gpu_is_not_free(
    card: Gpu, kind: FindingKind, severity: Severity, short: str, brief: str
) -> None:
    history = looked_before()
    found = see(history, 1, card)
    assert (found.severity, found.short, found.brief) == (severity, short, brief)
    assert kinds(history, card) == [kind]


def test_without_a_slowdown_temperature_the_guess_is_called_one() -> None:
    found = see(looked_before(), 1, gpu(temperature_gpu=88, temperature_slowdown=None))
    assert "the temperature at which it slows down is not known" in found.sentence


@pytest.mark.parametrize(
    ("bits", "short"),
    [
        (0x80, "throttled: HW power brake 5m"),
        (0x88, "throttled: HW power brake 5m"),
        (0x08, "throttled: HW slowdown 5m"),
    ],
)
def test_other_slowdowns_are_named(bits: int, short: str) -> None:
    card = gpu(utilization_gpu=99, clock_event_reasons=bits)
    found = see(looked_before(), 5 * MINUTE, card, process())
    assert (found.kind, found.short) == (FindingKind.THROTTLED, short)


def test_a_hardware_slowdown_by_heat_is_said_once_and_a_brake_beside_it_too() -> None:
    history = looked_before()
    card = gpu(utilization_gpu=99, clock_event_reasons=0x48)
    see(history, 60, card, process())
    assert kinds(history, card) == [FindingKind.HOT]
    braked = gpu(utilization_gpu=99, clock_event_reasons=0xC8)
    see(history, 60, braked, process())
    assert kinds(history, braked) == [FindingKind.HOT, FindingKind.THROTTLED]


def test_a_slowdown_that_comes_and_goes_is_one_until_it_stays_away(history: History) -> None:
    slowed, not_slowed = (
        gpu(utilization_gpu=99, clock_event_reasons=bits) for bits in (0x20, 0x00)
    )
    for _ in range(60):
        see(history, 0, slowed, process())
        see(history, 0, not_slowed, process())
    assert gpu_state(history, not_slowed).short == "hot: SW thermal 1m"
    assert see(history, 6, not_slowed, process()).kind is FindingKind.WORKING


# Stuck


def test_a_card_busy_at_little_power_for_long_may_be_stuck() -> None:
    found = see(looked_before(), 22 * MINUTE, stuck_card(), process(memory_used=74 * GIB))
    assert (found.kind, found.severity) == (FindingKind.STUCK, Severity.WARNING)
    assert (found.short, found.brief) == ("stuck? 100% at 17% power, 22m", "stuck?")
    assert found.sentence == (
        "100 % busy at 17 % of its power limit for 22 m: a hung job can look like this"
    )
    assert found.evidence == (
        "utilisation 100 %",
        "power 121 W of 700 W",
        f"like this in all {22 * 60 + 1:,} samples",
    )


def test_ten_minutes_must_have_been_seen() -> None:
    history = History(conditions())
    hold = process(memory_used=74 * GIB)
    assert see(history, 10 * MINUTE - 1, stuck_card(), hold).kind is FindingKind.WORKING
    assert see(history, 0, stuck_card(), hold).short == "stuck? 100% at 17% power, ≥10m"


# Values that are old


def stand_still(history: History, seconds: float, card: Gpu) -> Finding:
    """The state of a card of which only its old values are shown again, for so long."""
    old = msgspec.structs.replace(card, sampled_at=history.now)
    history.add(snapshot(history.now, old, processes=(process(),)))
    for _ in range(int(seconds)):
        history.add(snapshot(history.now + 1, old, processes=(process(),)))
    return gpu_state(history, old)


def test_of_old_values_nothing_is_claimed_but_their_age(history: History) -> None:
    see(history, 60, gpu(temperature_gpu=91, memory_free=GIB), process())
    card = gpu(temperature_gpu=91, memory_free=GIB, utilization_gpu=0)
    found = stand_still(history, 15, card)
    assert (found.kind, found.severity) == (FindingKind.OLD, Severity.NOTE)
    assert (found.short, found.brief, found.since) == ("read 15 s ago", "15s ago", history.now - 15)
    old = msgspec.structs.replace(card, sampled_at=found.since)
    assert kinds(history, old) == [FindingKind.OLD]


def test_a_card_that_was_free_is_not_free_for_ever() -> None:
    history = History(conditions())
    see(history, 30, gpu())
    old = gpu(sampled_at=history.now)
    history.add(snapshot(history.now + 2, old))
    assert gpu_state(history, old).kind is FindingKind.FREE
    history.add(snapshot(history.now + 1, old))
    assert gpu_state(history, old).kind is FindingKind.OLD


def test_values_are_old_by_the_pace_at_which_they_come() -> None:
    history = History(conditions())
    for number in range(3):
        moment = NOON + 60 * number
        history.add(snapshot(moment, gpu(sampled_at=moment)))
    card = gpu(sampled_at=history.now)
    history.add(snapshot(history.now + 150, card))
    assert gpu_state(history, card).kind is FindingKind.FREE
    history.add(snapshot(history.now + 1, card))
    assert gpu_state(history, card).short == "read 2 m ago"
    assert gpu_state(history, card).brief == "2m ago"


def test_what_does_not_heal_by_itself_is_told_of_old_values_too(history: History) -> None:
    card = gpu(ecc_uncorrected_volatile=1, xid=48, xid_at=NOON, temperature_gpu=95)
    stand_still(history, 15, card)
    old = msgspec.structs.replace(card, sampled_at=history.now - 15)
    assert kinds(history, old) == [FindingKind.MEMORY_ERRORS, FindingKind.XID, FindingKind.OLD]


# Memory errors, and what the driver asks for


def test_every_memory_error_stands_in_the_sentence_and_the_evidence() -> None:
    card = gpu(ecc_uncorrected_volatile=2, remapped_rows_pending=True)
    found = see(looked_before(), 1, card)
    assert found.short == "row remap pending: reset"
    assert "2 uncorrected ECC errors" in found.sentence
    assert "uncorrected ECC errors since the driver was loaded: 2" in found.evidence
    assert "row remap pending: yes" in found.evidence


# Errors that the driver reported of a card that still answers


def failed(xid: int, ago: float, history: History, **changes: object) -> Gpu:
    return gpu(utilization_gpu=50, xid=xid, xid_at=history.now + 1 - ago, **changes)


def test_an_xid_is_a_warning_for_as_long_as_gpumon_runs(history: History) -> None:
    card = failed(48, 0, history)
    found = see(history, 5 * HOUR, card, process(), step=10)
    assert (found.kind, found.severity) == (FindingKind.XID, Severity.WARNING)
    assert (found.short, found.brief) == ("XID 48 at 12:00: memory error t…", "XID 48")
    assert found.since == NOON + 6
    assert "XID 48 at 12:00: memory error that could not be corrected" in found.sentence
    found = see(history, 48 * HOUR, card, process(), step=600)
    assert found.short == "XID 48 2d05h ago: memory error …"


@pytest.mark.parametrize("number", [13, 31, 43, 45, 68])
def test_an_xid_that_a_program_causes_is_a_note_for_ten_minutes(number: int) -> None:
    history = looked_before()
    card = failed(number, 0, history)
    found = see(history, 10 * MINUTE, card, process())
    assert (found.kind, found.severity) == (FindingKind.XID, Severity.NOTE)
    assert found.brief == f"XID {number}"
    assert fits(found)
    assert see(history, 0, card, process()).kind is FindingKind.WORKING


def test_a_reset_is_a_note_with_the_process_that_the_kernel_names(history: History) -> None:
    timeout = Accident(
        history.now,
        AccidentKind.TIMEOUT,
        "GPU-0",
        pid=41233,
        process_name="python",
        text="ring gfx",
    )
    reset = Accident(history.now + 0.2, AccidentKind.RESET, "GPU-0", text="GPU reset begin!")
    other = Accident(history.now, AccidentKind.RESET, "GPU-1")
    seen = msgspec.structs.replace(snapshot(history.now + 1, gpu()), accidents=(other, timeout))
    history.add(seen)
    (found, *_) = gpu_findings(history, gpu())
    assert (found.kind, found.severity) == (FindingKind.ACCIDENT, Severity.NOTE)
    assert (found.short, found.brief) == ("time-out 12:00", "time-out")
    assert found.sentence.endswith("; the kernel names 41233 python")
    history.add(
        msgspec.structs.replace(seen, time=history.now + 1, accidents=(other, timeout, reset))
    )
    (found, *_) = gpu_findings(history, gpu())
    assert found.short == "reset 12:00"
    assert len(found.evidence) == 2
    assert fits(found)
    history.add(msgspec.structs.replace(seen, time=history.now + 1, accidents=(other,)))
    assert gpu_state(history, gpu()).kind is not FindingKind.ACCIDENT


@pytest.mark.parametrize(
    ("number", "pid", "is_said"), [(31, 41233, True), (43, 41233, False), (31, None, False)]
)
def test_an_xid_names_the_process_that_the_kernel_names(
    number: int, pid: int | None, is_said: bool
) -> None:
    history = looked_before()
    card = failed(31, 0, history)
    named = Accident(
        *(card.xid_at or 0.0, AccidentKind.ERROR_CODE, card.uuid, number), pid, "py\x1bthon"
    )
    seen = snapshot(history.now + 1, card)
    history.add(msgspec.structs.replace(seen, accidents=(named,)))
    sentence = gpu_state(history, card).sentence
    assert sentence.endswith("; the kernel names 41233 py\N{REPLACEMENT CHARACTER}thon") is is_said
    assert ("the kernel names" in sentence) is is_said


def test_an_error_of_the_card_is_not_forgotten_for_a_programs_that_follows() -> None:
    history = looked_before()
    see(history, 0, failed(48, 0, history), process())
    card = failed(45, 0, history)
    found = see(history, 60, card, process())
    assert (found.brief, found.severity) == ("XID 48", Severity.WARNING)
    assert any(fact.startswith("XID 45 at 12:00: ") for fact in found.evidence)


def test_an_error_of_no_known_time_is_not_called_recent(history: History) -> None:
    card = gpu(utilization_gpu=50, xid=31)
    assert see(history, 1, card, process()).kind is FindingKind.WORKING
    found = see(history, 1, gpu(utilization_gpu=50, xid=119), process())
    assert found.short == "XID 119: the GPU's system proce…"
    assert (found.since, found.severity) == (None, Severity.WARNING)


def test_an_error_says_what_to_do_once_for_all_that_need_the_same(history: History) -> None:
    for number in (119, 62, 31):
        found = see(history, 1, failed(number, 0, history), process())
    advice = [fact for fact in found.evidence if fact.startswith("what to do")]
    assert advice == [
        f"what to do about XID 62, XID 119: {error_code(62).advice}",
        f"what to do about XID 31: {error_code(31).advice}",
    ]


def test_a_repair_of_the_memory_is_worth_knowing_and_no_warning(history: History) -> None:
    found = see(history, 1, failed(63, 0, history), process())
    assert (found.kind, found.severity) == (FindingKind.XID, Severity.NOTE)


def test_an_unlisted_xid_makes_nothing_up(history: History) -> None:
    found = see(history, 1, failed(999, 0, history), process())
    assert found.short == "XID 999 at 12:00"
    assert "look it up" in found.sentence


def test_what_lasts_comes_before_heat_and_an_error_that_is_over_after_it(history: History) -> None:
    card = failed(119, 0, history, temperature_gpu=91, ecc_uncorrected_volatile=1)
    see(history, 1, card, process())
    assert kinds(history, card) == [FindingKind.MEMORY_ERRORS, FindingKind.HOT, FindingKind.XID]
    programs = failed(31, 0, history, temperature_gpu=91)
    other = looked_before()
    see(other, 1, programs, process())
    assert kinds(other, programs) == [FindingKind.HOT, FindingKind.XID]


def test_three_samples_are_not_enough_to_be_stuck() -> None:
    history, hold = looked_rarely(), process(memory_used=74 * GIB)
    assert see(history, 8 * 300, stuck_card(), hold, step=300).kind is FindingKind.WORKING
    found = see(history, 0, stuck_card(), hold, step=300)
    assert found.kind is FindingKind.STUCK
    assert "like this in all 10 samples" in found.evidence


# Memory held by no process


def test_memory_that_no_process_owns_is_said_with_its_size(history: History) -> None:
    card = gpu(memory_used=32 * GIB)
    found = see(history, 10, card, process(memory_used=GIB))
    assert (found.kind, found.severity) == (FindingKind.UNATTRIBUTED, Severity.WARNING)
    assert (found.short, found.brief, found.since) == ("31G unattributed", "31G unattr", NOON + 6)
    assert "memory used 32.0 GiB" in found.evidence
    assert "1 process on it, with 1.0 GiB" in found.evidence
    assert not any("not visible here" in fact for fact in found.evidence)


def test_where_processes_are_not_visible_here_the_sentence_says_so() -> None:
    hidden = process(memory_used=GIB, visible=False, user=None, started_at=None)
    found = see(looked_before(), 30, gpu(memory_used=32 * GIB), hidden)
    assert found.short == "31G unattributed, holder hidden"
    assert "held by no process that the driver lists" in found.sentence
    assert "1 of them not visible here" in found.evidence


def test_in_a_container_memory_of_others_is_no_fault(history: History) -> None:
    card = gpu(memory_used=41 * GIB, utilization_gpu=50)
    found = see(history, 30, card, process(memory_used=GIB), in_container=True)
    assert (found.kind, found.severity) == (FindingKind.UNATTRIBUTED, Severity.NOTE)
    assert (found.short, found.brief) == ("40.0G not visible from here", "40G other")
    assert found.sentence.startswith("40.0 GiB not visible from this container, for 30 s")
    hot = gpu(memory_used=41 * GIB, utilization_gpu=50, temperature_gpu=91)
    assert (
        see(history, 30, hot, process(memory_used=GIB), in_container=True).kind is FindingKind.HOT
    )
    outside = see(history, 30, card, process(memory_used=GIB), in_container=False)
    assert outside.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("card", "memory_used", "processes_at"),
    [
        (gpu(memory_used=int(1.7 * GIB)), GIB, 0.0),
        (gpu(memory_used=32 * GIB), None, 0.0),
        (gpu(memory_used=32 * GIB), GIB, NOON),
        (gpu(memory_used=32 * GIB, memory_unified=True), GIB, 0.0),
        (gpu(memory_used=None), GIB, 0.0),
        (gpu(memory_used=32 * GIB, unknown={"processes": Unknown.NOT_SUPPORTED}), GIB, 0.0),
    ],
    ids=["overhead", "memory unknown", "old list", "unified", "used unknown", "no list"],
)
def test_no_memory_is_called_ownerless_without_all_the_facts(
    card: Gpu, memory_used: int | None, processes_at: float
) -> None:
    history = looked_before()
    hold = process(memory_used=memory_used)
    see(history, 50, card, hold, processes_at=processes_at)
    assert FindingKind.UNATTRIBUTED not in kinds(history, card)


# Who may hold it


def suspect(
    pid: int = 41251,
    reason: HoldReason = HoldReason.ORPHAN,
    sentence: str = "its parent 41233 ended 22m ago",
    user: str | None = "ann",
    card: str = "GPU-0",
) -> UnlistedHolder:
    return UnlistedHolder(ProcessId(pid, 1), (card,), reason, sentence, user=user, name="python")


def stray(
    *suspects: UnlistedHolder, unseen: int = 0, in_container: bool | None = None, **changes: object
) -> Finding:
    """What is said of 31 GiB that no process owns, after somebody has looked for the holders."""
    history = looked_before()
    scan = HolderScan(at=history.now, suspects=suspects, unseen=unseen)
    card = gpu(**{"memory_used": 32 * GIB, **changes})
    return see(history, 30, card, process(memory_used=GIB), holders=scan, in_container=in_container)


def test_the_best_suspect_is_named_with_the_reason() -> None:
    found = stray(suspect())
    assert found.kind is FindingKind.UNATTRIBUTED
    assert (found.short, found.brief) == ("31G unattributed, orphan of ann", "31G unattr")
    assert found.sentence == (
        "31.0 GiB held by no process that the driver lists, for 30 s; "
        "orphan 41251 of ann holds the GPU's device file: its parent 41233 ended 22m ago"
    )
    assert "41251 python of ann: its parent 41233 ended 22m ago" in found.evidence


CHILD, WATCHER = suspect(1, HoldReason.CHILD), suspect(2, HoldReason.OBSERVER)
HOLDS = suspect(3, HoldReason.HOLDS)


@pytest.mark.parametrize(
    ("suspects", "words"),
    [
        ([suspect(reason=HoldReason.LEADER_EXITED)], ", half-dead of …"),
        ([suspect(reason=HoldReason.UNINTERRUPTIBLE)], ", D-state of ann"),
        ([suspect(reason=HoldReason.STOPPED)], ", stopped of ann"),
        ([suspect(reason=HoldReason.OTHER_CONTAINER)], ", container of …"),
        ([HOLDS], ", process of a…?"),
        ([CHILD], ", child of ann?"),
        ([WATCHER], ""),
        ([WATCHER, CHILD], ", child of ann?"),
        ([WATCHER, CHILD, HOLDS], ", process of a…?"),
        ([HOLDS, suspect(4)], ", orphan of ann"),
        # It holds another GPU, or is listed by now.
        ([suspect(card="GPU-1"), suspect(100)], ""),
    ],
    ids=[
        *("leader exited", "uninterruptible", "stopped", "other container", "holds", "child"),
        *("observer", "a child beside an observer", "a holder before a child"),
        *("an orphan before a holder", "on another GPU, or listed"),
    ],
)
def test_the_most_suspect_is_named_by_a_word_and_an_observer_is_not_blamed(
    suspects: list[UnlistedHolder], words: str
) -> None:
    assert stray(*suspects).short == f"31G unattributed{words}"


def test_a_child_is_blamed_softly() -> None:
    assert "the memory of a child is normally attributed to its parent" in stray(CHILD).sentence


def test_every_suspect_stands_in_the_evidence_and_the_others_are_counted() -> None:
    found = stray(suspect(), suspect(2, user=None), suspect(3, HoldReason.OBSERVER))
    assert found.short == "31G unattributed, orphan of … +1"
    assert [fact.split()[0] for fact in found.evidence if "python" in fact] == ["41251", "2", "3"]


def test_what_could_not_be_looked_into_is_said() -> None:
    found = stray(unseen=312)
    assert found.short == "31G unattributed"
    assert (
        "312 processes of other users could not be inspected: this requires root" in found.evidence
    )
    assert "no other holder of the device file was found" in found.evidence
    assert not any("root" in fact for fact in stray().evidence)


def test_before_anybody_looked_nobody_is_blamed_and_that_is_said(history: History) -> None:
    found = see(history, 30, gpu(memory_used=32 * GIB), process(memory_used=GIB))
    assert found.short == "31G unattributed"
    assert "other holders of the device file: not scanned yet" in found.evidence


def test_an_old_look_says_how_old_it_is(history: History) -> None:
    scan = HolderScan(at=history.now, suspects=(suspect(),))
    card = gpu(memory_used=32 * GIB)
    found = see(history, 300, card, process(memory_used=GIB), holders=scan)
    assert "scanned 5 m ago" in found.evidence


def test_in_a_container_nobody_is_blamed_for_what_others_may_hold() -> None:
    found = stray(suspect(), in_container=True)
    assert (found.short, found.severity) == ("31.0G not visible from here", Severity.NOTE)
    assert "41251 python of ann: its parent 41233 ended 22m ago" in found.evidence


@pytest.mark.parametrize("user", ["alexandra.lindqvist", "小林" * 9, "\x1b[31mred", None])
@pytest.mark.parametrize("reason", list(HoldReason))
def test_a_suspect_neither_breaks_the_column_nor_reaches_the_terminal_raw(
    reason: HoldReason, user: str | None
) -> None:
    one = suspect(4194304, reason, "\x1b]0;gone\x07", user)
    found = stray(one, one, one, memory_used=181 * GIB)
    assert fits(found), found.short
    assert "\x1b" not in found.short + found.sentence + "".join(found.evidence)


def test_where_the_driver_counts_its_own_as_used_that_is_said() -> None:
    words = "the used memory may include what this driver reserves for itself"
    assert any(words in fact for fact in stray(memory_reserved=None).evidence)
    assert not any(words in fact for fact in stray(memory_reserved=GIB // 2).evidence)


# The account of a card's memory


def account(card: Gpu, *processes: GpuProcess, seconds: float = 30, **world: Any) -> Account:
    history = looked_before()
    see(history, seconds, card, *processes, **world)
    return memory_account(history, card)


def test_an_account_adds_up() -> None:
    card = gpu(memory_used=32 * GIB, memory_free=47 * GIB, memory_reserved=GIB)
    scan = HolderScan(at=NOON, suspects=(suspect(), suspect(2, HoldReason.OBSERVER)), unseen=7)
    found = account(card, process(memory_used=GIB), holders=scan)
    assert (found.total, found.reserved, found.used) == (80 * GIB, GIB, 32 * GIB)
    assert (found.processes_sum, found.unattributed, found.free) == (GIB, 31 * GIB, 47 * GIB)
    assert found.tolerance == 256 * 2**20
    assert [one.id.pid for one in found.suspects] == [41251, 2]
    assert found.unseen == 7
    assert found.sentence.startswith("31.0 GiB held by no process that the driver lists, for 30 s;")


def test_a_little_without_an_owner_is_normal() -> None:
    card = gpu(memory_used=int(1.2 * GIB), memory_reserved=GIB)
    found = account(card, process(memory_used=GIB))
    assert found.unattributed == int(1.2 * GIB) - GIB
    assert found.sentence == (
        "1.2 GiB used, of which no listed process holds 0.2: up to 0.2 GiB is normal, "
        "for the driver itself"
    )
    assert (found.suspects, found.unseen) == ((), None)


def test_processes_that_hold_more_than_is_used_leave_nothing_over() -> None:
    found = account(gpu(memory_used=GIB, memory_reserved=GIB), process(memory_used=2 * GIB))
    assert found.unattributed == 0
    assert found.sentence == "1.0 GiB used, all of it by processes the driver lists"


def test_what_came_a_moment_ago_is_not_held_against_anybody_yet() -> None:
    found = account(gpu(memory_used=32 * GIB), process(memory_used=GIB), seconds=2)
    assert found.unattributed == 31 * GIB
    assert "at this moment" in found.sentence


def test_an_account_of_an_older_driver_says_what_is_in_the_sum() -> None:
    assert "may include what this driver reserves" in account(gpu(memory_reserved=None)).sentence
    assert "may include what this driver reserves" not in account(gpu(memory_reserved=GIB)).sentence


@pytest.mark.parametrize(
    ("card", "memory_used", "world", "words"),
    [
        (gpu(memory_unified=True), GIB, {}, "no memory of its own"),
        (gpu(memory_used=None), GIB, {}, "the used memory is unknown"),
        (gpu(), None, {}, "the memory of some of its processes is not reported"),
        (gpu(), GIB, {"processes_at": NOON - 9}, "no current list"),
        (gpu(sampled_at=NOON), GIB, {}, "read 36 s ago"),
    ],
    ids=["unified", "used unknown", "a process unknown", "old list", "old values"],
)
def test_an_account_claims_nothing_without_all_the_facts(
    card: Gpu, memory_used: int | None, world: dict[str, Any], words: str
) -> None:
    found = account(card, process(memory_used=memory_used), **world)
    assert found.unattributed is None
    assert words in found.sentence


def test_an_account_of_a_card_that_was_never_seen_is_empty() -> None:
    found = memory_account(History(conditions()), Gpu(index=0, uuid="GPU-9"))
    assert (found.total, found.used, found.unattributed, found.unseen) == (None, None, None, None)


# Cards that do not answer


def lost(**changes: object) -> Gpu:
    return gpu(
        **{
            "status": GpuStatus.LOST,
            "utilization_gpu": None,
            "memory_used": None,
            "xid": 79,
            **changes,
        }
    )


def test_a_lost_card_says_since_when_and_the_last_xid_in_plain_words(history: History) -> None:
    since = NOON + 5 * MINUTE
    found = see(history, 10 * MINUTE, lost(status_since=since, xid_at=since))
    assert (found.kind, found.severity) == (FindingKind.LOST, Severity.CRITICAL)
    assert (found.short, found.brief, found.since) == ("LOST since 12:05 (XID 79)", "LOST", since)
    assert "last XID 79: the GPU fell off the bus" in found.sentence
    assert "last XID 79: the GPU fell off the bus, at 12:05" in found.evidence
    assert f"what to do about XID 79: {error_code(79).advice}" in found.evidence


def test_a_card_that_was_lost_before_gpumon_looked_says_so() -> None:
    found = see(History(conditions()), 60, lost(status_since=NOON))
    assert found.short == "LOST before 12:00 (XID 79)"
    assert found.sentence.startswith("lost since before 12:00: ")


def test_after_a_day_a_length_takes_the_place_of_the_time(history: History) -> None:
    since = history.now + 1
    found = see(history, 52 * HOUR, lost(status_since=since), step=600)
    assert found.short == "LOST for 2d04h (XID 79)"
    assert found.sentence.startswith("lost for 2 d 04 h: ")


def test_a_lost_card_without_an_xid_or_with_an_unlisted_one_makes_nothing_up() -> None:
    history = looked_before()
    assert see(history, 0, lost(xid=None)).short == "LOST"
    found = see(history, 0, lost(xid=999))
    assert found.short == "LOST (XID 999)"
    assert "look it up" in found.sentence


@pytest.mark.parametrize(
    ("status", "kind", "severity", "short"),
    [
        (GpuStatus.NO_ANSWER, FindingKind.NO_ANSWER, Severity.CRITICAL, "no answer for 4 s"),
        (
            GpuStatus.RESET_REQUIRED,
            FindingKind.RESET_REQUIRED,
            Severity.CRITICAL,
            "reset required (XID 95)",
        ),
        (GpuStatus.ASLEEP, FindingKind.ASLEEP, Severity.NOTE, "asleep"),
        (GpuStatus.NO_PERMISSION, FindingKind.NO_PERMISSION, Severity.NOTE, "no permission"),
    ],
)
def test_a_card_that_does_not_answer_says_only_that(
    status: GpuStatus, kind: FindingKind, severity: Severity, short: str
) -> None:
    history = looked_before()
    # Its old values may stand beside the status; they are no longer true.
    stale = gpu(
        status=status,
        status_since=history.now + 1,
        memory_free=GIB,
        temperature_gpu=95,
        clock_event_reasons=0x40,
        xid=95,
    )
    found = see(history, 4, stale, process())
    assert (found.kind, found.severity, found.short) == (kind, severity, short)
    assert kinds(history, stale) == [kind]


def test_a_failing_card_says_what_else_is_known(history: History) -> None:
    card = gpu(
        status=GpuStatus.FAILING, status_since=NOON + 65, temperature_gpu=91, utilization_gpu=50
    )
    see(history, 60, card, process())
    first, second = gpu_findings(history, card)
    assert (first.kind, first.short) == (FindingKind.FAILING, "failing for 1 s")
    assert first.sentence == (
        "most calls to it have failed for 1 s, but the driver reports neither that it is lost nor "
        "that it must be reset"
    )
    assert second.kind is FindingKind.HOT


def test_plain_words_for_the_xids_that_people_meet() -> None:
    known = {13, 31, 43, 45, 48, 61, 62, 63, 64, 69, 74, 79, 92, 94, 95, 119, 120, 140, 154}
    assert all(error_code(number).meaning for number in known)


# All of them


def test_the_most_severe_comes_first_and_ok_is_said_only_alone(history: History) -> None:
    card = stuck_card(temperature_gpu=91, memory_used=40 * GIB, memory_free=2 * GIB)
    see(history, 11 * MINUTE, card, process(memory_used=GIB))
    found = gpu_findings(history, card)
    assert [finding.kind for finding in found] == [
        FindingKind.HOT,
        FindingKind.STUCK,
        FindingKind.UNATTRIBUTED,
        FindingKind.FULL,
    ]
    severities = [finding.severity for finding in found]
    assert severities == sorted(severities, reverse=True)
    assert gpu_state(history, card) == found[0]


@pytest.mark.slow
@pytest.mark.parametrize("status", list(GpuStatus))
@pytest.mark.parametrize(
    "card",
    [
        gpu(),
        gpu(memory_used=40 * GIB, memory_free=GIB),
        stuck_card(temperature_gpu=91, xid=48, xid_at=NOON),
        gpu(remapped_rows_failure=True, temperature_gpu=91),
        gpu(ecc_uncorrected_volatile=2, recovery_action="Reset", sampled_at=NOON),
        Gpu(index=0, uuid="GPU-0"),
    ],
    ids=["idle", "stray", "stuck", "bad memory", "old", "blank"],
)
def test_the_state_is_the_first_of_the_findings(card: Gpu, status: GpuStatus) -> None:
    history = looked_before()
    shown = msgspec.structs.replace(card, status=status)
    assert see(history, 700, shown, process()) == gpu_findings(history, shown)[0]


def fits(found: Finding) -> bool:
    return cell_width(found.short) <= SHORT_CELLS and cell_width(found.brief) <= BRIEF_CELLS


def test_a_card_the_history_never_saw_makes_no_rule_fail(history: History) -> None:
    found = {kind for kind, rule in GPU_RULES.items() if rule.answer(history, gpu(index=5))}
    assert found <= {FindingKind.FREE, FindingKind.WORKING}


def test_thresholds_can_be_set() -> None:
    patient = Thresholds(idle_after=600, hot_margin=20)
    history = History(conditions(patient), patient)
    card = gpu(temperature_gpu=75)
    see(history, 5, gpu(utilization_gpu=60), process())
    see(history, 300, card, process())
    assert [f.kind for f in gpu_findings(history, card)] == [FindingKind.HOT]
