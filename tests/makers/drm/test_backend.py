"""GPUs that sleep, are unplugged, fail or hang, and who is blamed for it."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from gpumon.makers.drm import clients, holders
from gpumon.makers.source import NoSuchGpuError, SourceError
from gpumon.model.selection import parse_selection
from gpumon.model.snapshot import GpuStatus, Unknown
from tests.known import known
from tests.makers.drm.example import MIB, ExampleBackend, add_card, client, node
from tests.makers.drm.trees import KERNEL, Faults, SampledTree, record, see_all_processes, write
from tests.makers.hanging import Hanging

SENSOR = "hwmon/hwmon0/temp1_input"


@pytest.fixture
def tree(tmp_path: Path) -> SampledTree:
    return SampledTree(tmp_path, ExampleBackend)


@pytest.fixture
def card(tree: SampledTree) -> Path:
    """The folder of the only card."""
    return add_card(tree, 3)


@pytest.fixture
def two_cards(tree: SampledTree) -> SampledTree:
    add_card(tree, 3)
    add_card(tree, 5)
    return tree


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


# Finding them


def test_each_gpu_of_its_drivers_is_found_once(tree: SampledTree) -> None:
    add_card(tree, 3)
    tree.card("0000:09:00.0", "nvidia", {"vendor": "0x10de\n"}, number=9, render=137)
    # A virtual function without a driver.
    (add_card(tree, 4) / "driver").unlink()
    gpu = tree.gpu()
    assert (gpu.pci_bus_id, gpu.minor_number, gpu.name) == ("0000:03:00.0", 131, "Acme 0x744c")
    assert (gpu.temperature_gpu, gpu.memory_used) == (45, 100 * MIB)


def test_cards_come_before_processor_graphics(tree: SampledTree) -> None:
    add_card(tree, 1, device="0x1234")
    add_card(tree, 5)
    add_card(tree, 3)
    gpus = tree.read().gpus
    assert [(gpu.index, gpu.pci_bus_id, gpu.memory_unified) for gpu in gpus] == [
        (0, "0000:03:00.0", False),
        (1, "0000:05:00.0", False),
        (2, "0000:01:00.0", True),
    ]


@pytest.mark.parametrize(
    ("selection", "index", "other"), [("1", 1, "0000:03"), ("GPU-0000:03", 0, "0000:05")]
)
def test_only_selected_gpus_are_read(
    two_cards: SampledTree, faults: Faults, selection: str, index: int, other: str
) -> None:
    two_cards.opened(parse_selection(selection))
    assert two_cards.gpu().index == index
    assert not [path for path in faults.reads if other in path]


@pytest.mark.parametrize("selection", ["2", "GPU-ffff"])
def test_a_selected_gpu_that_is_not_there_is_named(two_cards: SampledTree, selection: str) -> None:
    with pytest.raises(NoSuchGpuError) as caught:
        two_cards.opened(parse_selection(selection))
    assert caught.value.sentence == f"There is no GPU {selection}."
    assert caught.value.advice == "This machine has GPUs 0 to 1."


def test_without_a_gpu_it_is_said_what_to_do(tree: SampledTree) -> None:
    with pytest.raises(SourceError) as caught:
        tree.opened()
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
    card: Path, tree: SampledTree, status: str, enabled: str, connected: bool, driven: bool
) -> None:
    write(card / "drm/card3/card3-DP-1/status", f"{status}\n")
    write(card / "drm/card3/card3-DP-1/enabled", f"{enabled}\n")
    gpu = tree.gpu()
    assert (gpu.display_mode, gpu.display_active) == (connected, driven)


@pytest.mark.usefixtures("card")
def test_an_output_that_comes_and_goes_is_no_lost_gpu(tree: SampledTree, faults: Faults) -> None:
    tree.read()
    assert not [path for path in faults.reads if "card3-DP-1" in path], "it would stay open"


def test_a_gpu_without_outputs_drives_no_monitor(tree: SampledTree) -> None:
    tree.card("0000:03:00.0", "amdgpu", {"device": "0x1\n"}, connectors=())
    gpu = tree.gpu()
    assert (gpu.display_mode, gpu.display_active) == (False, False)


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("own", [None, "6.10.5"])
def test_the_driver_is_named_with_its_version(tree: SampledTree, own: str | None) -> None:
    if own is not None:
        write(tree.sys / "module/amdgpu/version", f"{own}\n")
    assert tree.read().driver.version == f"amdgpu {own or KERNEL}"


def test_a_gpu_that_is_plugged_in_appears(tree: SampledTree) -> None:
    add_card(tree, 5)
    tree.read()
    add_card(tree, 3)
    gpus = tree.read(3.0).gpus
    assert [(gpu.index, gpu.uuid[4:]) for gpu in gpus] == [(0, "0000:03:00.0"), (1, "0000:05:00.0")]


def test_an_unplugged_gpu_is_lost_under_its_name_until_it_is_back(two_cards: SampledTree) -> None:
    tree = two_cards
    tree.process(100, {5: (node(3), client(3))})
    assert set(tree.lists()) == {100}
    tree.unplug("0000:03:00.0")
    reading = tree.read(3.0)
    lost, other = reading.gpus
    assert (lost.status, lost.index, lost.name) == (GpuStatus.LOST, 0, "Acme 0x744c")
    assert lost.temperature_gpu is None
    assert lost.unknown["temperature_gpu"] is Unknown.GPU_LOST
    assert lost.unknown["processes"] is Unknown.GPU_LOST
    assert lost.unknown["clock_sm"] is Unknown.NOT_SUPPORTED
    assert other.status is GpuStatus.OK
    assert reading.listed == {}
    write(add_card(tree, 3) / SENSOR, "51000\n")
    tree.read(3.0)
    back, _ = tree.read(3.0).gpus
    assert (back.status, back.temperature_gpu) == (GpuStatus.OK, 51)
    assert not {"temperature_gpu", "processes"} & back.unknown.keys()


def test_a_sleeping_gpu_is_not_woken(
    tree: SampledTree, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(tree, 3, control="auto", runtime_status="suspended")
    add_card(tree, 5)
    tree.process(100, {5: (node(3), client(3)), 6: (node(5), client(5))})
    read = record(monkeypatch, clients, "read_fdinfo")
    for _ in range(3):
        reading = tree.read()
    asleep = reading.gpus[0]
    assert not [path for path in faults.reads if "0000:03:00.0" in path]
    assert {path.rpartition("/")[2] for path in read} == {"6"}
    assert (asleep.status, asleep.name) == (GpuStatus.ASLEEP, "Acme 0x744c")
    assert asleep.unknown["temperature_gpu"] is Unknown.ASLEEP
    assert asleep.unknown["clock_sm"] is Unknown.NOT_SUPPORTED
    # Who holds it is known without its use.
    held, _ = known(reading.listed)[100].uses
    assert (held.gpu_index, held.memory_used, held.sm) == (0, None, None)
    assert "processes" not in asleep.unknown


@pytest.mark.parametrize("state", ["suspended", "suspending"])
def test_a_gpu_that_falls_asleep_is_left_alone_until_it_wakes(
    tree: SampledTree, faults: Faults, state: str
) -> None:
    folder = add_card(tree, 3, control="auto", runtime_status="active")
    assert tree.gpu().temperature_gpu == 45
    write(folder / "power/runtime_status", f"{state}\n")
    faults.reads.clear()
    gpu = tree.gpu()
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.ASLEEP, None)
    assert gpu.unknown["utilization_gpu"] is Unknown.ASLEEP
    assert gpu.unknown["fan_speed"] is Unknown.NOT_SUPPORTED
    assert faults.reads == []
    write(folder / "power/runtime_status", "active\n")
    gpu = tree.gpu()
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, 45)
    assert Unknown.ASLEEP not in gpu.unknown.values()


def test_a_gpu_that_may_not_sleep_is_read_whatever_its_state(tree: SampledTree) -> None:
    add_card(tree, 3, control="on", runtime_status="suspended")
    assert tree.gpu().temperature_gpu == 45


# Errors


REASONS = {
    Unknown.NOT_SUPPORTED: (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP),
    Unknown.NO_PERMISSION: (errno.EACCES,),
    Unknown.NO_ANSWER: (errno.EPERM, errno.EBUSY, errno.ETIME, errno.EIO),
}


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize(
    ("number", "reason"),
    [
        pytest.param(number, reason, id=errno.errorcode[number])
        for reason, numbers in REASONS.items()
        for number in numbers
    ],
)
def test_why_a_value_is_unknown(
    tree: SampledTree, faults: Faults, number: int, reason: Unknown
) -> None:
    faults.errors[SENSOR] = number
    gpu = tree.gpu()
    assert (gpu.status, gpu.temperature_gpu, gpu.memory_used) == (GpuStatus.OK, None, 100 * MIB)
    assert gpu.unknown["temperature_gpu"] is reason


@pytest.mark.parametrize("text", ["", "\n", "warm\n", "4" * 30, "1.5\n"])
def test_a_value_that_is_no_number_is_unknown(card: Path, tree: SampledTree, text: str) -> None:
    write(card / SENSOR, text)
    gpu = tree.gpu()
    assert gpu.temperature_gpu is None
    assert gpu.unknown["temperature_gpu"] is Unknown.NOT_SUPPORTED


@pytest.mark.usefixtures("card")
def test_a_value_stays_while_its_file_fails_for_a_moment(tree: SampledTree, faults: Faults) -> None:
    tree.read()
    faults.errors[SENSOR] = errno.EBUSY
    assert tree.gpu().temperature_gpu == 45
    tree.read(11.0)
    assert tree.gpu().unknown["temperature_gpu"] is Unknown.NO_ANSWER
    del faults.errors[SENSOR]
    assert tree.gpu().temperature_gpu == 45


def test_a_file_that_comes_later_is_found(card: Path, tree: SampledTree) -> None:
    assert tree.gpu().unknown["fan_speed"] is Unknown.NOT_SUPPORTED
    write(card / "fan", "33\n")
    tree.read(31.0)
    assert tree.gpu(3.0).fan_speed == 33


@pytest.mark.parametrize(
    ("errors", "status", "reason"),
    [
        pytest.param(
            {"mem_used": errno.ENODEV}, GpuStatus.LOST, Unknown.GPU_LOST, id="the driver let go"
        ),
        pytest.param(
            dict.fromkeys((SENSOR, "mem_used"), errno.EIO),
            *(GpuStatus.LOST, Unknown.GPU_LOST),
            id="it answers nothing",
        ),
        pytest.param({SENSOR: errno.EIO}, GpuStatus.OK, None, id="one broken sensor"),
    ],
)
def test_a_gpu_whose_files_fail_is_lost_if_all_do_or_the_device_is_gone(
    two_cards: SampledTree,
    faults: Faults,
    errors: dict[str, int],
    status: GpuStatus,
    reason: Unknown | None,
) -> None:
    two_cards.read()
    faults.errors = {f"0000:03:00.0/{name}": number for name, number in errors.items()}
    failing, other = two_cards.read().gpus
    assert (failing.status, other.status) == (status, GpuStatus.OK)
    assert failing.unknown.get("memory_used") is reason


@pytest.mark.usefixtures("card")
def test_a_lost_gpu_that_is_listed_is_tried_again_and_not_praised_too_early(
    tree: SampledTree, faults: Faults
) -> None:
    tree.read()
    faults.errors["mem_used"] = errno.ENODEV
    since = tree.gpu().status_since
    gpu = tree.gpu(6.0)
    assert (gpu.status, gpu.status_since) == (GpuStatus.LOST, since)
    assert gpu.temperature_gpu is None
    faults.errors.clear()
    gpu = tree.gpu(6.0)
    assert (gpu.status, gpu.temperature_gpu) == (GpuStatus.OK, 45)


def test_a_gpu_that_hangs_does_not_stop_the_others(two_cards: SampledTree, faults: Faults) -> None:
    tree = two_cards
    tree.read()
    faults.hung.add("0000:03:00.0/mem_used")
    backend, release = tree.opened(), faults.released.set
    hanging = Hanging(backend, backend.read, "GPU-0000:03:00.0", "mem_used", release)
    assert backend.give_up(hanging.call)
    first, other = tree.read().gpus
    assert (first.status, other.status) == (GpuStatus.NO_ANSWER, GpuStatus.OK)
    assert first.temperature_gpu == 45, "it keeps its last values"
    assert first.unknown["processes"] is Unknown.NO_ANSWER
    assert other.sampled_at == tree.clock.time()
    faults.hung.clear()
    hanging.ends()
    assert tree.read().gpus[0].status is GpuStatus.OK
    assert "processes" not in tree.read().gpus[0].unknown


def test_a_client_whose_gpu_hangs_is_blamed_on_that_gpu(
    two_cards: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = two_cards
    tree.process(100, {5: (node(3), client(3, 1))})
    tree.process(101, {5: (node(5), client(5, 2))})
    tree.read()
    released = threading.Event()
    whole = clients.read_fdinfo

    def hang(path: str) -> bytes:
        if "/100/" in path:
            released.wait(10)
        return whole(path)

    monkeypatch.setattr(clients, "read_fdinfo", hang)
    tree.clock.now += 1
    backend = tree.opened()
    hanging = Hanging(backend, backend.read, "GPU-0000:03:00.0", "fdinfo", released.set)
    assert backend.give_up(hanging.call)
    reading = tree.read()
    assert [gpu.status for gpu in reading.gpus] == [GpuStatus.NO_ANSWER, GpuStatus.OK]
    assert set(known(reading.listed)) == {100, 101}, "its processes stay listed as they were"
    hanging.ends()
    assert not backend.give_up(hanging.call)


@pytest.mark.usefixtures("card")
def test_time_in_the_driver_is_counted(tree: SampledTree) -> None:
    backend = tree.backend(ExampleBackend)
    backend.open()
    backend.read()
    assert 0 < backend.driver_seconds < 1


# Lists


@pytest.mark.usefixtures("card")
def test_lists_are_read_about_once_a_second(tree: SampledTree) -> None:
    first = tree.read()
    assert tree.read(0.5).listed is first.listed
    again = tree.read(0.5)
    assert again.listed is not first.listed
    assert again.listed_at == tree.clock.time()


def test_processes_that_cannot_be_looked_at_hide_no_others(
    tree: SampledTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_all_processes(monkeypatch)
    add_card(tree, 3)
    tree.process(100, {5: (node(3), client(3))})
    tree.process(200)
    tree.process(201, flags=0x00208040, name="kworker/0:1")
    refuse(monkeypatch, 200, 201)
    reading = tree.read()
    assert set(known(reading.listed)) == {100}
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
