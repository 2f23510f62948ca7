"""GPUs that sleep, are unplugged, fail or hang, and who is blamed for it."""

from __future__ import annotations

import errno
import threading
from typing import TYPE_CHECKING

import pytest

from gpumon.makers.drm import clients, holders
from gpumon.makers.source import CallGivenUpError, NoSuchGpuError, SourceError
from gpumon.model.selection import ALL, parse_selection
from gpumon.model.snapshot import GpuStatus, Unknown
from tests.clock import HandClock
from tests.makers.drm.example import MIB, ExampleBackend, add_card, client, node
from tests.makers.drm.trees import Faults, Tree, see_all_processes, write

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.makers.backend import Reading
    from gpumon.model.snapshot import Gpu

TEMPERATURE = "temp1_input"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def opened(tree: Tree, clock: HandClock, selection: str = "") -> ExampleBackend:
    chosen = parse_selection(selection) if selection else ALL
    backend = tree.backend(ExampleBackend, chosen, clock)
    backend.open()
    return backend


def later(backend: ExampleBackend, clock: HandClock, seconds: float = 1.0) -> Reading:
    clock.now += seconds
    return backend.read()


# Finding them


def test_each_gpu_of_its_drivers_is_found_once(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    tree.card("0000:09:00.0", "nvidia", {"vendor": "0x10de\n"}, number=9, render=137)
    (gpu,) = opened(tree, clock).read().gpus
    assert (gpu.pci_bus_id, gpu.minor_number, gpu.name) == ("0000:03:00.0", 131, "Acme 0x744c")
    assert gpu.temperature_gpu == 45
    assert gpu.memory_used == 100 * MIB


def test_a_virtual_function_without_a_driver_is_no_gpu(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    (add_card(tree, 4) / "driver").unlink()
    assert len(opened(tree, clock).read().gpus) == 1


def test_cards_come_before_processor_graphics(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 1, device="0x1234")
    add_card(tree, 5)
    add_card(tree, 3)
    gpus = opened(tree, clock).read().gpus
    assert [gpu.pci_bus_id for gpu in gpus] == ["0000:03:00.0", "0000:05:00.0", "0000:01:00.0"]
    assert [gpu.index for gpu in gpus] == [0, 1, 2]
    assert [gpu.memory_unified for gpu in gpus] == [False, False, True]


@pytest.mark.parametrize(("selection", "expected"), [("1", [1]), ("GPU-0000:03", [0])])
def test_only_selected_gpus_are_read(
    tree: Tree, clock: HandClock, faults: Faults, selection: str, expected: list[int]
) -> None:
    add_card(tree, 3)
    add_card(tree, 5)
    reading = opened(tree, clock, selection).read()
    assert [gpu.index for gpu in reading.gpus] == expected
    other = "0000:03" if expected == [1] else "0000:05"
    assert not [path for path in faults.reads if other in path]


@pytest.mark.parametrize("selection", ["2", "GPU-ffff"])
def test_a_selected_gpu_that_is_not_there_is_named(
    tree: Tree, clock: HandClock, selection: str
) -> None:
    add_card(tree, 3)
    add_card(tree, 5)
    with pytest.raises(NoSuchGpuError) as caught:
        opened(tree, clock, selection)
    assert caught.value.sentence == f"There is no GPU {selection}."
    assert caught.value.advice == "This machine has GPUs 0 to 1."


def test_without_a_gpu_it_is_said_what_to_do(tree: Tree, clock: HandClock) -> None:
    with pytest.raises(SourceError) as caught:
        opened(tree, clock)
    assert caught.value.sentence == "No GPU of AMD was found."
    assert caught.value.advice == (
        "`lspci -nnk -d 1002:` lists those of the machine with their drivers, and `sudo dmesg | "
        "grep amdgpu` shows what the driver reports about them."
    )


@pytest.mark.parametrize(
    ("status", "enabled", "connected", "driven"),
    [
        ("connected", "enabled", True, True),
        ("connected", "disabled", True, False),
        ("disconnected", "disabled", False, False),
        ("unknown", "disabled", False, False),
    ],
)
def test_whether_a_monitor_is_connected_and_driven(
    tree: Tree, clock: HandClock, status: str, enabled: str, connected: bool, driven: bool
) -> None:
    folder = add_card(tree, 3)
    write(folder / "drm/card3/card3-DP-1/status", f"{status}\n")
    write(folder / "drm/card3/card3-DP-1/enabled", f"{enabled}\n")
    (gpu,) = opened(tree, clock).read().gpus
    assert (gpu.display_mode, gpu.display_active) == (connected, driven)


def test_an_output_that_vanishes_and_comes_back_is_no_lost_gpu(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    backend.read()
    assert not [path for path in faults.reads if "card3-DP-1" in path], "it would stay open"


def test_a_gpu_without_outputs_drives_no_monitor(tree: Tree, clock: HandClock) -> None:
    tree.card("0000:03:00.0", "amdgpu", {"device": "0x1\n"}, connectors=())
    (gpu,) = opened(tree, clock).read().gpus
    assert (gpu.display_mode, gpu.display_active) == (False, False)


def test_the_driver_is_named_with_its_version(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    assert backend.read().driver.version == "amdgpu 6.8.0-49-generic"
    write(tree.sys / "module/amdgpu/version", "6.10.5\n")
    assert opened(tree, clock).read().driver.version == "amdgpu 6.10.5"


# Plugging


def test_a_gpu_that_is_plugged_in_appears(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 5)
    backend = opened(tree, clock)
    backend.read()
    add_card(tree, 3)
    gpus = later(backend, clock, 3.0).gpus
    assert [(gpu.index, gpu.uuid[4:]) for gpu in gpus] == [(0, "0000:03:00.0"), (1, "0000:05:00.0")]


def test_an_unplugged_gpu_is_lost_but_keeps_its_name(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    add_card(tree, 5)
    tree.process(100, {5: (node(3), client(3))})
    backend = opened(tree, clock)
    assert set(backend.read().listed or {}) == {100}
    tree.unplug("0000:03:00.0")
    reading = later(backend, clock, 3.0)
    lost, other = reading.gpus
    assert (lost.status, lost.index, lost.name) == (GpuStatus.LOST, 0, "Acme 0x744c")
    assert lost.temperature_gpu is None
    assert lost.unknown["temperature_gpu"] is Unknown.GPU_LOST
    assert lost.unknown["processes"] is Unknown.GPU_LOST
    assert lost.unknown["clock_sm"] is Unknown.NOT_SUPPORTED
    assert other.status is GpuStatus.OK
    assert reading.listed == {}


def test_a_gpu_that_comes_back_is_read_again(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    backend.read()
    tree.unplug("0000:03:00.0")
    assert later(backend, clock, 3.0).gpus[0].status is GpuStatus.LOST
    write(add_card(tree, 3) / "hwmon/hwmon0/temp1_input", "51000\n")
    later(backend, clock, 3.0)
    (gpu,) = later(backend, clock, 3.0).gpus
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, 51)
    assert "temperature_gpu" not in gpu.unknown
    assert "processes" not in gpu.unknown


# Sleeping


def test_a_sleeping_gpu_is_not_woken(
    tree: Tree, clock: HandClock, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(tree, 3, control="auto", runtime_status="suspended")
    add_card(tree, 5)
    tree.process(100, {5: (node(3), client(3)), 6: (node(5), client(5))})
    read: list[str] = []
    whole = clients.read_fdinfo

    def recorded(path: str) -> bytes:
        read.append(path)
        return whole(path)

    monkeypatch.setattr(clients, "read_fdinfo", recorded)
    backend = opened(tree, clock)
    for _ in range(3):
        reading = later(backend, clock)
    asleep = reading.gpus[0]
    assert not [path for path in faults.reads if "0000:03:00.0" in path]
    assert {path.rpartition("/")[2] for path in read} == {"6"}
    assert asleep.status is GpuStatus.ASLEEP
    assert asleep.name == "Acme 0x744c"
    assert asleep.unknown["temperature_gpu"] is Unknown.ASLEEP
    assert asleep.unknown["clock_sm"] is Unknown.NOT_SUPPORTED


def test_who_holds_a_sleeping_gpu_is_told_without_its_use(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3, control="auto", runtime_status="suspended")
    tree.process(100, {5: (node(3), client(3))})
    reading = opened(tree, clock).read()
    assert reading.listed is not None
    (use,) = reading.listed[100].uses
    assert (use.gpu_index, use.memory_used, use.sm) == (0, None, None)
    assert "processes" not in reading.gpus[0].unknown


@pytest.mark.parametrize("state", ["suspended", "suspending"])
def test_a_gpu_that_falls_asleep_is_left_alone_until_it_wakes(
    tree: Tree, clock: HandClock, faults: Faults, state: str
) -> None:
    folder = add_card(tree, 3, control="auto", runtime_status="active")
    backend = opened(tree, clock)
    assert backend.read().gpus[0].temperature_gpu == 45
    write(folder / "power/runtime_status", f"{state}\n")
    faults.reads.clear()
    (gpu,) = later(backend, clock).gpus
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.ASLEEP, None)
    assert gpu.unknown["utilization_gpu"] is Unknown.ASLEEP
    assert gpu.unknown["fan_speed"] is Unknown.NOT_SUPPORTED
    assert faults.reads == []
    write(folder / "power/runtime_status", "active\n")
    (gpu,) = later(backend, clock).gpus
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, 45)
    assert Unknown.ASLEEP not in gpu.unknown.values()


def test_a_gpu_that_may_not_sleep_is_read_whatever_its_state(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3, control="on", runtime_status="suspended")
    assert opened(tree, clock).read().gpus[0].temperature_gpu == 45


# Errors


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOENT, Unknown.NOT_SUPPORTED),
        (errno.EINVAL, Unknown.NOT_SUPPORTED),
        (errno.EOPNOTSUPP, Unknown.NOT_SUPPORTED),
        (errno.EACCES, Unknown.NO_PERMISSION),
        (errno.EPERM, Unknown.NO_ANSWER),
        (errno.EBUSY, Unknown.NO_ANSWER),
        (errno.ETIME, Unknown.NO_ANSWER),
        (errno.EIO, Unknown.NO_ANSWER),
    ],
)
def test_why_a_value_is_unknown(
    tree: Tree, clock: HandClock, faults: Faults, number: int, reason: Unknown
) -> None:
    add_card(tree, 3)
    faults.errors[TEMPERATURE] = number
    (gpu,) = opened(tree, clock).read().gpus
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, None)
    assert gpu.unknown["temperature_gpu"] is reason
    assert gpu.memory_used == 100 * MIB


@pytest.mark.parametrize("text", ["", "\n", "warm\n", "4" * 30, "1.5\n"])
def test_a_value_that_is_no_number_is_unknown(tree: Tree, clock: HandClock, text: str) -> None:
    write(add_card(tree, 3) / "hwmon/hwmon0/temp1_input", text)
    (gpu,) = opened(tree, clock).read().gpus
    assert gpu.temperature_gpu is None
    assert gpu.unknown["temperature_gpu"] is Unknown.NOT_SUPPORTED


def test_a_value_stays_while_reading_it_fails_for_a_moment(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    backend.read()
    faults.errors[TEMPERATURE] = errno.EBUSY
    assert later(backend, clock).gpus[0].temperature_gpu == 45
    later(backend, clock, 11.0)
    (gpu,) = later(backend, clock).gpus
    assert gpu.unknown["temperature_gpu"] is Unknown.NO_ANSWER
    del faults.errors[TEMPERATURE]
    assert later(backend, clock).gpus[0].temperature_gpu == 45


def test_a_file_that_comes_later_is_found(tree: Tree, clock: HandClock) -> None:
    folder = add_card(tree, 3)
    backend = opened(tree, clock)
    assert backend.read().gpus[0].unknown["fan_speed"] is Unknown.NOT_SUPPORTED
    write(folder / "fan", "33\n")
    later(backend, clock, 31.0)
    assert later(backend, clock, 3.0).gpus[0].fan_speed == 33


def lost_by(tree: Tree, clock: HandClock, faults: Faults, errors: dict[str, int]) -> list[Gpu]:
    add_card(tree, 3)
    add_card(tree, 5)
    backend = opened(tree, clock)
    backend.read()
    faults.errors = {f"0000:03:00.0/{name}": number for name, number in errors.items()}
    return list(later(backend, clock).gpus)


def test_a_gpu_whose_driver_let_go_of_it_is_lost(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    lost, other = lost_by(tree, clock, faults, {"mem_used": errno.ENODEV})
    assert (lost.status, other.status) == (GpuStatus.LOST, GpuStatus.OK)
    assert lost.unknown["memory_used"] is Unknown.GPU_LOST


def test_a_gpu_that_answers_nothing_is_lost(tree: Tree, clock: HandClock, faults: Faults) -> None:
    files = dict.fromkeys(("hwmon/hwmon0/temp1_input", "mem_used"), errno.EIO)
    lost, other = lost_by(tree, clock, faults, files)
    assert (lost.status, other.status) == (GpuStatus.LOST, GpuStatus.OK)


def test_a_gpu_with_one_broken_sensor_is_not_lost(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    broken, _ = lost_by(tree, clock, faults, {"hwmon/hwmon0/temp1_input": errno.EIO})
    assert broken.status is GpuStatus.OK


def test_a_lost_gpu_that_is_listed_is_tried_again_and_not_praised_too_early(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    backend.read()
    faults.errors["mem_used"] = errno.ENODEV
    since = later(backend, clock).gpus[0].status_since
    (gpu,) = later(backend, clock, 6.0).gpus
    assert (gpu.status, gpu.status_since) == (GpuStatus.LOST, since)
    assert gpu.temperature_gpu is None
    faults.errors.clear()
    (gpu,) = later(backend, clock, 6.0).gpus
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, 45)


# Hanging


def read_on_a_thread(backend: ExampleBackend) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            backend.read()
        except CallGivenUpError as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def wait_for_call(backend: ExampleBackend) -> None:
    for _ in range(1000):
        if backend.current_call is not None:
            threading.Event().wait(0.01)
            if backend.current_call is not None:
                return
        threading.Event().wait(0.002)
    pytest.fail("no call was published")


def test_a_gpu_that_hangs_does_not_stop_the_others(
    tree: Tree, clock: HandClock, faults: Faults
) -> None:
    add_card(tree, 3)
    write(add_card(tree, 5) / "hwmon/hwmon0/temp1_input", "60000\n")
    backend = opened(tree, clock)
    backend.read()
    faults.hung.add("0000:03:00.0/mem_used")
    thread, errors = read_on_a_thread(backend)
    wait_for_call(backend)
    call = backend.current_call
    assert call is not None
    assert (call.gpu_uuid, call.function) == ("GPU-0000:03:00.0", "mem_used")
    assert backend.give_up(call)
    hanging, other = later(backend, clock).gpus
    assert (hanging.status, other.status) == (GpuStatus.NO_ANSWER, GpuStatus.OK)
    assert hanging.temperature_gpu == 45, "it keeps its last values"
    assert hanging.unknown["processes"] is Unknown.NO_ANSWER
    assert other.temperature_gpu == 60
    faults.hung.clear()
    faults.released.set()
    thread.join(10)
    assert errors
    hanging, _ = later(backend, clock).gpus
    assert hanging.status is GpuStatus.OK
    assert "processes" not in later(backend, clock).gpus[0].unknown


def test_a_client_whose_gpu_hangs_is_blamed_on_that_gpu(
    tree: Tree, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(tree, 3)
    add_card(tree, 5)
    tree.process(100, {5: (node(3), client(3, 1))})
    tree.process(101, {5: (node(5), client(5, 2))})
    backend = opened(tree, clock)
    backend.read()
    released = threading.Event()
    whole = clients.read_fdinfo

    def hang(path: str) -> bytes:
        if "/100/" in path:
            released.wait(10)
        return whole(path)

    monkeypatch.setattr(clients, "read_fdinfo", hang)
    clock.now += 1
    thread, errors = read_on_a_thread(backend)
    wait_for_call(backend)
    call = backend.current_call
    assert call is not None
    assert call.gpu_uuid == "GPU-0000:03:00.0"
    assert backend.give_up(call)
    reading = later(backend, clock)
    assert [gpu.status for gpu in reading.gpus] == [GpuStatus.NO_ANSWER, GpuStatus.OK]
    assert reading.listed is not None
    assert set(reading.listed) == {100, 101}, "its processes stay listed as they were"
    released.set()
    thread.join(10)
    assert errors
    assert not backend.give_up(call)


def test_time_in_the_driver_is_counted(tree: Tree) -> None:
    add_card(tree, 3)
    backend = tree.backend(ExampleBackend)
    backend.open()
    backend.read()
    assert 0 < backend.driver_seconds < 1


# Lists


def test_lists_are_read_about_once_a_second(tree: Tree, clock: HandClock) -> None:
    add_card(tree, 3)
    backend = opened(tree, clock)
    first = backend.read()
    assert later(backend, clock, 0.5).listed is first.listed
    again = later(backend, clock, 0.5)
    assert again.listed is not first.listed
    assert again.listed_at == clock.time()


def test_processes_that_cannot_be_looked_at_hide_no_others(
    tree: Tree, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    add_card(tree, 3)
    tree.process(100, {5: (node(3), client(3))})
    tree.process(200)
    tree.process(201, flags=0x00208040, name="kworker/0:1")
    refuse(monkeypatch, 200, 201)
    reading = opened(tree, clock).read()
    assert set(reading.listed or {}) == {100}
    assert "processes" not in reading.gpus[0].unknown
    found = holders.FileHolders(str(tree.proc))
    assert set(found.scan(1.0)) == {100}
    assert not found.complete
    tree.end(200)
    assert set(found.scan(2.0)) == {100}
    assert found.complete, "a kernel thread has no files"


def refuse(monkeypatch: pytest.MonkeyPatch, *pids: int) -> None:
    """Let the open files of some processes be forbidden; the tests may run as root."""
    whole = holders.drm_files

    def refused(folder: str) -> dict[int, str]:
        if int(folder.split("/")[-2]) in pids:
            raise PermissionError(errno.EACCES, "Permission denied")
        return whole(folder)

    monkeypatch.setattr(holders, "drm_files", refused)
