"""The accidents of a recording are those that happened, with all that became known of them."""

from __future__ import annotations

from msgspec.structs import replace

from gpumon.model.accidents import Accident, AccidentKind
from gpumon.recording.accidents import recorded_accidents, recorded_report
from gpumon.recording.memory.recording import MemoryRecording
from tests.build import NOON, gpu, process, snapshot


def test_a_line_that_came_after_the_event_of_the_driver_says_whose_it_was() -> None:
    event = Accident(NOON + 1, AccidentKind.ERROR_CODE, "GPU-0", 31)
    line = replace(event, time=NOON + 0.5, pid=41233, process_name="python", text="Ch 8")
    listed = (process(41233),)
    recording = MemoryRecording(0.05)
    recording.add(snapshot(NOON, processes=listed))
    for second, accident in ((2, event), (3, line)):
        broken = gpu(xid=31, xid_at=event.time)
        taken = snapshot(NOON + second, broken, processes=listed)
        recording.add(replace(taken, accidents=(accident,)))

    assert len(recording.events(NOON, NOON + 3)) == 1
    (found,) = recorded_accidents(recording, 10)
    assert recorded_report(recording, found).process == listed[0]
