"""The driver's library, loaded and called: what it lacks, where it hangs, where it lies."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Callable, Iterator

import pynvml
import pytest

from gpumon.makers.nvidia import library, xids
from gpumon.makers.nvidia.library import Library, load_library
from gpumon.makers.nvidia.xids import THREAD, EventXidWatcher, XidReports
from gpumon.makers.source import SourceError
from gpumon.model.snapshot import GpuStatus
from gpumon.system.system import SystemClock
from tests.absent import ABSENT
from tests.driver import FUNCTIONS, GIB, Driver, Model, Owner, h100
from tests.makers.hanging import Hanging, wait_until
from tests.makers.nvml_room import (
    Code,
    Furnish,
    Room,
    join_watchers,
    replace_function,
    sample_elsewhere,
    sampling,
)
from tests.nvml_source import NvmlSource

Listening = Callable[..., tuple[Room, "Waiting"]]

POWER = "nvmlDeviceGetPowerUsage"


def test_a_missing_function_is_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", object())
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    library = Library(SystemClock())
    assert library.call(None, "nvmlNoSuchThing") == Code.FUNCTION_NOT_FOUND
    assert library.call(None, "nvmlNoSuchThing", 1, 2) == Code.FUNCTION_NOT_FOUND
    assert not library.has("nvmlNoSuchThing")
    assert library.ask(None, pynvml.nvmlGpmSampleAlloc) == (Code.FUNCTION_NOT_FOUND, None)


def test_a_machine_without_the_library_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(library, "LIBRARY", "libno-such-driver.so.1")
    monkeypatch.setattr(library, "WSL_LIBRARY", f"{ABSENT}/libno-such-driver.so.1")
    with pytest.raises(SourceError) as caught:
        NvmlSource().open()
    assert "libnvidia-ml.so.1 was not found" in caught.value.sentence
    assert "Install the NVIDIA driver" in caught.value.advice


def test_the_library_of_wsl_is_found_where_the_linker_does_not_look(
    furnish: Furnish, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = furnish(h100())
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(library, "LIBRARY", "libno-such-driver.so.1")
    monkeypatch.setattr(library, "WSL_LIBRARY", str(room.driver.library))
    room.open()
    assert room.sample().gpus


def test_a_driver_before_all_versions_of_calls_is_read_as_far_as_it_goes() -> None:
    newer = (
        *("MemoryInfo_v2", "ComputeRunningProcesses_v2", "GraphicsRunningProcesses_v2"),
        *("MPSComputeRunningProcesses", "MPSComputeRunningProcesses_v2", "TemperatureV"),
        *("MarginTemperature", "CurrentClocksEventReasons", "FieldValues", "MigMode"),
        *("ProcessUtilization", "Architecture", "FanSpeed_v2", "RemappedRows"),
    )
    without = [
        *(name for name in FUNCTIONS if name.endswith("_v3")),
        *(f"nvmlDeviceGet{name}" for name in newer),
        "nvmlEventSetWait_v2",
    ]
    with Driver([h100(memory_used=GIB, temperature=51)], without=without) as driver:
        driver.cards[0].processes = [Owner(4_000_001, memory=GIB)]
        snapshot = sample_elsewhere(driver)
        reserved = driver.cards[0].memory_reserved or 0
    (gpu,) = snapshot["gpus"]
    assert gpu["status"] == "ok"
    # The first version counts what the driver keeps for itself as used.
    assert gpu["memory_used"] == GIB + reserved
    assert "memory_used" not in gpu["unknown"]
    assert (gpu["memory_reserved"], gpu["temperature_gpu"]) == (None, 51)
    assert gpu["pci_bus_id"].endswith(":00.0")
    assert gpu["clock_event_reasons"] == 1
    for field in ("memory_reserved", "power_instant", "architecture"):
        assert gpu["unknown"][field] == "not supported"
    ((use,),) = (process["uses"] for process in snapshot["processes"])
    assert (use["memory_used"], use.get("sm")) == (GIB, None)


def test_without_a_driver_behind_the_library_it_says_so() -> None:
    with Driver() as driver:
        answer = sample_elsewhere(driver, NVML_SIM_STATE=ABSENT)
    assert "not loaded" in answer["sentence"]


def test_a_call_that_hangs_can_be_seen_from_outside_until_it_returns(opened: Furnish) -> None:
    room = opened(h100(), h100())
    (source,) = room.sources
    room.sample()
    hanging = sampling(room, room.driver.cards[1])
    assert hanging.call.since == room.clock.now
    assert hanging.thread.is_alive()
    hanging.goes_on()
    assert source.current_call is None
    assert not source.give_up(hanging.call), "it returned"
    assert room.gpu(index=1).status is GpuStatus.OK


def test_a_card_that_is_given_up_is_left_alone_until_its_call_returns(opened: Furnish) -> None:
    room = opened(h100(), h100(power_usage=250_000))
    (source,) = room.sources
    room.sample()
    card = room.driver.cards[1]
    room.clock.now += 0.1
    hanging = sampling(room, card)
    assert source.give_up(hanging.call)
    assert not source.give_up(hanging.call), "it is given up already"
    # A thread of its own makes this call.
    wait_until(lambda: "nvmlDeviceRegisterEvents" in card.calls())
    card.reset_counters()
    for _ in range(30):
        sound, given_up = room.sample(1.0).gpus
        assert (sound.status, given_up.status) == (GpuStatus.OK, GpuStatus.NO_ANSWER)
    assert sound.sampled_at == pytest.approx(room.clock.time())
    assert given_up.power_draw == 250.0, "what was known of it"
    assert given_up.status_since == pytest.approx(room.clock.time() - 30, abs=0.2)
    assert not card.calls()
    hanging.ends()
    assert room.gpu(index=1).status is GpuStatus.OK
    again = sampling(room, card, "nvmlDeviceGetUtilizationRates")
    assert source.give_up(again.call)
    for _ in range(2):
        assert room.gpu(index=1).status is GpuStatus.NO_ANSWER
    again.ends()


@pytest.mark.parametrize("function", ["nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"])
def test_a_start_that_is_given_up_is_gone_on_with(furnish: Furnish, function: str) -> None:
    room = furnish(h100(), h100(), h100())
    source = room.new_source()
    card = room.driver.cards[1]
    card.hang(function)
    hanging = Hanging(source, source.open, "index-1", function, card.release)
    assert source.give_up(hanging.call)
    source.open()
    statuses = [gpu.status for gpu in room.sample().gpus]
    assert statuses == [GpuStatus.OK, GpuStatus.NO_ANSWER, GpuStatus.OK]
    room.samples(10)
    rare = "nvmlDeviceGetEncoderUtilization"
    before = room.card.times(rare)
    room.samples(20, seconds=1.0)
    assert room.card.times(rare) - before == pytest.approx(10, abs=1), "asked once"
    hanging.ends()
    assert [(gpu.uuid, gpu.status) for gpu in room.sample().gpus] == [
        (card.uuid, GpuStatus.OK) for card in room.driver.cards
    ]
    assert room.calls("nvmlSystemGetDriverVersion") == 1


def test_the_library_stays_for_a_thread_that_hangs_in_it(opened: Furnish) -> None:
    room = opened(h100())
    (source,) = room.sources
    room.sample()
    hanging = sampling(room, room.card)
    assert source.give_up(hanging.call)
    source.close()
    join_watchers()
    assert room.calls("nvmlShutdown") == 1, "that of the thread that waits for XIDs"
    hanging.ends()


def test_a_call_that_asks_no_card_is_not_given_up(opened: Furnish) -> None:
    room = opened(h100())
    (source,) = room.sources
    room.clock.now += 5
    system, function = room.driver.system, "nvmlDeviceGetCount_v2"
    system.hang(function)
    hanging = Hanging(source, source.sample, None, function, system.release)
    assert not source.give_up(hanging.call)
    hanging.goes_on()
    assert room.gpu().status is GpuStatus.OK


def test_a_hanging_start_names_the_call(furnish: Furnish) -> None:
    room = furnish(h100())
    source = room.new_source()
    room.driver.system.hang("nvmlInit_v2")
    Hanging(source, source.open, None, "nvmlInit_v2", room.driver.system.release).goes_on()
    assert room.sample().gpus


def test_a_text_that_is_no_utf8_is_no_error(furnish: Furnish) -> None:
    room = furnish(h100(name=b"\xff\xfe"))
    load_library()
    library = Library(SystemClock())
    assert not library.call(None, "nvmlInit_v2")
    code, handle = library.ask(None, pynvml.nvmlDeviceGetHandleByIndex, 0)
    assert not code
    name = library.text(None, pynvml.nvmlDeviceGetName, handle)
    assert name == (0, 2 * "\N{REPLACEMENT CHARACTER}")
    assert room.calls("nvmlDeviceGetName") == 1


# XIDs


def report_xid(room: Room, number: int, index: int = 0) -> None:
    """Let a card report an XID, which a sample soon has."""
    room.driver.cards[index].xid(number)
    wait_until(lambda: room.gpu(0.0, index).xid == number)


@pytest.fixture
def registered(opened: Furnish) -> Furnish:
    """Makes a room as `opened` does, whose cards are waited for."""

    def make(*models: Model) -> Room:
        room = opened(*models)
        room.sample()
        room.until_registered(len(models))
        return room

    return make


def test_an_xid_is_told_with_its_card_and_its_time(registered: Furnish) -> None:
    room = registered(h100(), h100())
    assert [gpu.xid for gpu in room.sample().gpus] == [None, None]
    report_xid(room, 48, 1)
    first, second = room.sample(60).gpus
    assert first.xid is None
    assert second.xid_at == pytest.approx(room.clock.time() - 60, abs=0.2)
    report_xid(room, 79, 1)
    assert room.gpu(0.0, 1).xid_at == pytest.approx(room.clock.time(), abs=0.2)


def test_the_last_xid_of_a_card_outlives_the_card(registered: Furnish) -> None:
    room = registered(h100(), h100())
    report_xid(room, 79)
    room.card.lost = True
    gpu = room.gpu()
    assert (gpu.status, gpu.xid) == (GpuStatus.LOST, 79)
    wait_until(lambda: room.calls("nvmlDeviceRegisterEvents") >= 3)
    report_xid(room, 31, 1)
    assert room.gpu(0.0).xid == 79


def test_xids_are_told_after_the_driver_was_loaded_anew(registered: Furnish) -> None:
    room = registered(h100())
    report_xid(room, 13)
    room.driver.reload()
    assert room.gpu().xid == 13
    room.until_registered(2)
    report_xid(room, 43)


def test_xids_of_a_card_that_came_later_are_told(registered: Furnish) -> None:
    room = registered(h100())
    order: list[str] = []
    for name in ("nvmlDeviceRegisterEvents", "nvmlEventSetFree"):
        watch_function(room, name, order)
    room.driver.add_card(h100())
    assert len(room.sample(2.1).gpus) == 2
    wait_until(lambda: "nvmlEventSetFree" in order)
    assert order == [*["nvmlDeviceRegisterEvents"] * 2, "nvmlEventSetFree"], "none is missed"
    report_xid(room, 94, 1)


def watch_function(room: Room, name: str, order: list[str]) -> None:
    """From now on its name is added whenever it is called."""

    def watching(*arguments: object) -> int:
        order.append(name)
        return answer(*arguments)

    answer = replace_function(room, name, watching)


class Waiting:
    """Waits for the XIDs of all GPUs of a room, and records when it does not listen.

    Of each pause only the ``longest`` seconds pass here.
    """

    def __init__(self, room: Room, longest: float = math.inf) -> None:
        self.pauses: list[float] = []
        self.reports = XidReports()
        self.watcher = EventXidWatcher(room.clock, self.reports, self.wait)
        self.longest = longest
        self.watcher.start(self.gpus())

    def gpus(self) -> dict[int, str]:
        count = pynvml.nvmlDeviceGetCount()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(count))
        values = [ctypes.cast(handle, ctypes.c_void_p).value or 0 for handle in handles]
        return {value: f"GPU-{index}" for index, value in enumerate(values)}

    def wait(self, stopped: threading.Event, seconds: float) -> bool:
        self.pauses.append(seconds)
        return stopped.wait(min(seconds, self.longest))

    def is_told(self, number: int, gpu: str) -> bool:
        found = self.reports.next_of(gpu, None)
        return found is not None and found[0] == number


@pytest.fixture
def listening(furnish: Furnish) -> Iterator[Callable[..., tuple[Room, Waiting]]]:
    """Waits for the XIDs of so many GPUs."""
    running: list[Waiting] = []

    def start(
        gpus: int = 1, longest: float = math.inf, before: Callable[[Room], object] = id
    ) -> tuple[Room, Waiting]:
        room = furnish(*[h100()] * gpus)
        load_library()
        pynvml.nvmlInit()
        before(room)
        waiting = Waiting(room, longest)
        running.append(waiting)
        room.until_registered(gpus)
        return room, waiting

    yield start
    for waiting in running:
        waiting.watcher.stop()
        pynvml.nvmlShutdown()


def test_a_lost_card_leaves_the_xids_of_the_others_at_once(listening: Listening) -> None:
    room, waiting = listening(2)
    room.card.lost = True
    room.until_registered(4)
    room.driver.cards[1].xid(48)
    wait_until(lambda: waiting.is_told(48, "GPU-1"))
    assert not waiting.pauses


def test_an_xid_that_comes_between_two_registrations_is_told(listening: Listening) -> None:
    room, waiting = listening(2)

    def creating(*arguments: object) -> int:
        room.card.xid(48)
        return create(*arguments)

    create = replace_function(room, "nvmlEventSetCreate", creating)
    waiting.watcher.watch(dict([*waiting.gpus().items()][:1]))
    wait_until(lambda: waiting.is_told(48, "GPU-0"))


def test_lost_cards_alone_are_not_waited_for_in_a_hurry(listening: Listening) -> None:
    room, waiting = listening()
    room.card.lost = True
    wait_until(lambda: len(waiting.pauses) >= 2)
    assert room.calls("nvmlDeviceRegisterEvents") == 2


def test_a_lost_card_that_stays_in_is_not_waited_for_in_a_hurry(listening: Listening) -> None:
    room, waiting = listening()
    room.driver.system.fail("nvmlEventSetWait_v2", Code.LOST)
    wait_until(lambda: len(waiting.pauses) >= 2)
    registered = room.calls("nvmlDeviceRegisterEvents")
    assert registered <= len(waiting.pauses) + 3


def test_a_driver_that_refuses_to_be_awaited_is_not_asked_in_a_hurry(listening: Listening) -> None:
    room, waiting = listening(longest=0.1)
    pauses = waiting.pauses
    room.driver.system.fail("nvmlEventSetWait_v2", Code.UNKNOWN)
    waits = room.calls("nvmlEventSetWait_v2")
    wait_until(lambda: len(pauses) >= 3 or room.calls("nvmlEventSetWait_v2") > waits + 20)
    assert room.calls("nvmlEventSetWait_v2") <= waits + len(pauses) + 2
    assert min(pauses) > 1
    room.driver.system.fail("nvmlEventSetWait_v2", 0)

    def is_told() -> bool:
        # One that comes between two registrations is told to nobody.
        room.card.xid(48)
        return waiting.is_told(48, "GPU-0")

    wait_until(is_told)


def test_a_driver_without_a_set_of_events_is_not_asked_in_a_hurry(listening: Listening) -> None:
    room, waiting = listening(longest=0.1)
    pauses = waiting.pauses
    sets = room.calls("nvmlEventSetCreate")
    room.driver.system.fail("nvmlEventSetCreate", Code.MEMORY)
    room.driver.add_card(h100())
    waiting.watcher.watch(waiting.gpus())
    wait_until(lambda: len(pauses) >= 3 or room.calls("nvmlEventSetCreate") > sets + 20)
    assert room.calls("nvmlEventSetCreate") <= sets + len(pauses) + 2
    assert min(pauses) > 1
    room.driver.system.fail("nvmlEventSetCreate", 0)
    room.until_registered(3)
    room.driver.cards[1].xid(48)
    wait_until(lambda: waiting.is_told(48, "GPU-1"))


def test_a_card_without_xids_is_no_trouble(registered: Furnish) -> None:
    report_xid(registered(h100(event_types=None), h100()), 8, 1)


def test_a_card_that_refuses_events_at_first_is_heard_later(
    sampled: Furnish, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xids, "pause_after", lambda *_, **__: 0.0)
    room = sampled(h100(), h100(), failing={"nvmlDeviceRegisterEvents": Code.NOT_SUPPORTED})
    wait_until(lambda: room.card.times("nvmlDeviceRegisterEvents") >= 2)
    room.card.heal()

    def is_told() -> bool:
        room.card.xid(48)
        return room.gpu(0.0).xid == 48

    wait_until(is_told)


def test_a_driver_without_room_for_the_waiting_thread_is_asked_again(listening: Listening) -> None:
    refused: list[int] = []

    def refuse(room: Room) -> None:
        def first_refused() -> int:
            refused.append(1)
            return Code.UNKNOWN if len(refused) == 1 else init()

        init = replace_function(room, "nvmlInit_v2", first_refused)

    _, waiting = listening(longest=0.01, before=refuse)
    assert len(refused) == 2
    assert waiting.pauses == [5.0]


def test_a_driver_that_hangs_while_it_is_waited_for_keeps_nobody(registered: Furnish) -> None:
    room = registered(h100())
    room.driver.system.hang("nvmlEventSetWait_v2")
    wait_until(lambda: room.driver.system.hanging("nvmlEventSetWait_v2"))
    began = time.monotonic()
    room.sources[0].close()
    assert time.monotonic() - began < 5
    assert threads_that_wait() == 1, "it hangs"
    room.driver.system.release()


def test_the_waiting_thread_ends_soon_after_it_is_closed(opened: Furnish) -> None:
    room = opened(h100())
    assert threads_that_wait() == 1
    room.sources[0].close()
    join_watchers()
    assert threads_that_wait() == 0


def threads_that_wait() -> int:
    return [thread.name for thread in threading.enumerate()].count(THREAD)
