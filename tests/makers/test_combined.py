"""GPUs of several makers on one machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpumon.host.kernel_watcher import Heard
from gpumon.makers import amd as amd_maker
from gpumon.makers import nvidia as nvidia_maker
from gpumon.makers.backend import DriverInfo, GpuBackend, ListedProcess, Reading
from gpumon.makers.combined import CombinedBackend, Member
from gpumon.makers.sampler import Sampler
from gpumon.makers.source import Call, NoSuchGpuError, SourceError
from gpumon.model.makers import DeviceFiles, Maker
from gpumon.model.processes import GpuUse
from gpumon.model.selection import ALL, GpuSelection, parse_selection
from gpumon.model.snapshot import Gpu, Trouble
from gpumon.model.topology import Joint, Link, Links
from gpumon.system.system import System
from tests.build import gpu
from tests.clock import HandClock
from tests.known import known
from tests.makers.hanging import wait_until


class Driver(GpuBackend):
    """A driver that a test controls."""

    def __init__(self, name: str, maker: Maker, *gpus: Gpu, version: str | None = None) -> None:
        self.name = name
        path = f"/dev/{name}{{minor}}"
        self.device_files = DeviceFiles(path, f"/dev/{name}", maker)
        self.gpus = gpus
        self.listed: dict[int, ListedProcess] = {}
        self.answers = DriverInfo(version=version)
        self.trouble: Trouble | None = None
        self.opens = self.reads = 0
        self.time = 1.0
        self.call: Call | None = None
        self.heard: list[Sequence[Heard] | None] = []

    def open(self) -> None:
        self.opens += 1
        if self.trouble is not None:
            raise SourceError(self.trouble.sentence, self.trouble.advice)

    def read(self, *, full: bool = True) -> Reading:  # noqa: ARG002 - the signature of the base
        self.reads += 1
        if self.trouble is not None:
            return Reading(1.0, (), self.answers, trouble=self.trouble)
        return Reading(self.time, self.gpus, self.answers, self.listed, 1.0)

    def hear(self, heard: Sequence[Heard] | None, *, is_readable: bool) -> None:
        assert is_readable
        self.heard.append(heard)

    @property
    def only_integrated(self) -> bool:
        return all(one.memory_unified for one in self.gpus)

    def links(self) -> Links:
        pair = frozenset(one.uuid for one in self.gpus[:2])
        return Links({pair: Joint(Link.SWITCH)})

    @property
    def current_call(self) -> Call | None:
        return self.call

    def give_up(self, call: Call, /) -> bool:
        return call is self.call


GONE = Trouble("The NVIDIA driver is not loaded.", "Load it.")


def cards(uuid: str, name: str) -> list[Gpu]:
    return [gpu(uuid=f"{uuid}{n}", index=n, name=name, memory_unified=False) for n in (0, 1)]


def nvidia(trouble: Trouble | None = None) -> Driver:
    driver = Driver("nvml", nvidia_maker.MAKER, *cards("GPU-", "NVIDIA H100"), version="570.1")
    driver.trouble = trouble
    return driver


def amd() -> Driver:
    own = gpu(uuid="PCI-0000:c4:00.0", index=2, name="AMD Radeon 780M", memory_unified=True)
    discrete = cards("GPU-a", "AMD Instinct MI210")
    return Driver("amdgpu", amd_maker.MAKER, *discrete, own, version="amdgpu 6.8")


def amd_processor() -> Driver:
    """AMD's driver on a machine that has only the GPU of its processor."""
    driver = amd()
    driver.gpus = (replace(driver.gpus[2], index=0),)
    return driver


def combined(
    *drivers: Driver,
    expected: bool = True,
    hides: bool = True,
    selection: GpuSelection = ALL,
    clock: HandClock | None = None,
) -> CombinedBackend:
    members = [
        Member(
            one,
            f"{one.device_files.maker.name if one.device_files.maker else ''}'s driver",
            expected=2 if expected and one.name == "nvml" else 0,
            hides_integrated=hides and one.name != "nvml",
        )
        for one in drivers
    ]
    return CombinedBackend(members, selection, System(clock=clock or HandClock()))


def opened(*drivers: Driver, hides: bool = True, selection: GpuSelection = ALL) -> CombinedBackend:
    both = combined(*drivers, hides=hides, selection=selection)
    both.open()
    return both


def uuids(reading: Reading) -> list[str]:
    return [one.uuid for one in reading.gpus]


ALL_UUIDS = ["GPU-0", "GPU-1", "GPU-a0", "GPU-a1", "PCI-0000:c4:00.0"]


def test_the_gpus_of_the_second_driver_follow_those_of_the_first() -> None:
    both = opened(nvidia(), amd(), hides=False)
    gpus = both.read().gpus
    assert [(one.index, one.uuid) for one in gpus] == list(enumerate(ALL_UUIDS))
    assert both.name == "nvml+amdgpu"


def test_a_process_on_gpus_of_two_makers_is_one() -> None:
    first, second = nvidia(), amd()
    first.listed = {7: ListedProcess("C", (GpuUse("GPU-1", 1, memory_used=1),))}
    second.listed = {
        7: ListedProcess("G", (GpuUse("GPU-a0", 0, memory_used=2),)),
        8: ListedProcess("C", (GpuUse("GPU-a1", 1),)),
    }
    found = {
        pid: (process.type, [(use.gpu_uuid, use.gpu_index) for use in process.uses])
        for pid, process in known(opened(first, second).read().listed).items()
    }
    assert found == {7: ("C+G", [("GPU-1", 1), ("GPU-a0", 2)]), 8: ("C", [("GPU-a1", 3)])}


def test_the_lists_are_the_same_object_until_a_driver_reads_new_ones() -> None:
    first, second = nvidia(), amd()
    both = opened(first, second)
    before = both.read().listed
    assert both.read().listed is before
    second.listed = {8: ListedProcess("C", (GpuUse("GPU-a1", 1),))}
    after = known(both.read().listed)
    assert after is not before
    assert 8 in after
    assert both.read().driver is both.read().driver


def test_a_processors_gpu_is_left_out_beside_another_and_not_read() -> None:
    processor = amd_processor()
    both = opened(nvidia(), processor)
    reading = both.read()
    assert uuids(reading) == ["GPU-0", "GPU-1"]
    assert (both.name, reading.driver.version) == ("nvml", "570.1")
    assert processor.reads == 0


def test_a_processors_gpu_is_shown_where_it_is_the_only_one() -> None:
    both = combined(nvidia(GONE), amd_processor(), expected=False)
    both.open()
    assert uuids(both.read()) == ["PCI-0000:c4:00.0"]
    assert both.name == "amdgpu"


def test_a_driver_that_must_be_there_is_an_error_beside_a_processors_gpu() -> None:
    with pytest.raises(SourceError, match="not loaded"):
        combined(nvidia(GONE), amd_processor()).open()


def test_a_missing_driver_is_said_beside_the_version_of_the_other_until_it_appears() -> None:
    first, clock = nvidia(GONE), HandClock()
    both = combined(first, amd(), clock=clock)
    both.open()
    reading = both.read()
    # The indices 0 and 1 are those of NVIDIA's GPUs: nobody else's GPU is taken for one of them.
    assert [one.index for one in reading.gpus] == [2, 3]
    assert reading.driver.version == "amdgpu 6.8, NVIDIA's driver does not respond"
    first.trouble = None
    clock.now += 6.0
    reading = both.read()
    assert (uuids(reading), reading.driver.version) == (ALL_UUIDS[:4], "570.1, amdgpu 6.8")


def test_indices_stay_when_a_driver_is_reloaded() -> None:
    first, second = nvidia(), amd()
    both = opened(first, second)
    both.read()
    first.trouble = GONE
    reading = both.read()
    assert [(one.index, one.uuid) for one in reading.gpus] == [(2, "GPU-a0"), (3, "GPU-a1")]
    assert reading.trouble is None
    second.trouble = GONE
    assert both.read().trouble == GONE


def test_selected_gpus_are_those_of_the_common_numbers() -> None:
    first, second = nvidia(), amd()
    second.listed = {8: ListedProcess("C", (GpuUse("GPU-a0", 0), GpuUse("GPU-a1", 1)))}
    reading = opened(first, second, selection=parse_selection("1,3")).read()
    assert uuids(reading) == ["GPU-1", "GPU-a1"]
    assert [use.gpu_uuid for use in known(reading.listed)[8].uses] == ["GPU-a1"]
    with pytest.raises(NoSuchGpuError, match="no GPU 9"):
        opened(first, second, selection=parse_selection("9"))


def test_without_any_driver_the_one_that_must_be_there_explains() -> None:
    second = amd()
    second.trouble = Trouble("No AMD GPU.", "Add one.")
    with pytest.raises(SourceError, match="NVIDIA driver is not loaded"):
        combined(nvidia(GONE), second).open()


def test_a_hung_call_is_given_up_by_its_driver() -> None:
    first, second = nvidia(), amd()
    both = opened(first, second)
    second.call = Call("GPU-a0", "gpu_busy_percent", 1.0)
    assert both.current_call is second.call
    assert both.give_up(second.call)
    assert not both.give_up(Call("GPU-0", "nvmlDeviceGetName", 1.0))


def test_each_gpu_has_the_device_file_of_its_driver_and_links_within_its_maker() -> None:
    both = opened(nvidia(), amd())
    first, *_, last = both.read().gpus
    files = both.device_files
    assert files.path_of(replace(first, minor_number=3)) == "/dev/nvml3"
    assert files.path_of(replace(last, minor_number=129)) == "/dev/amdgpu129"
    assert files.prefixes == ("/dev/nvml", "/dev/amdgpu")
    names = ("/dev/nvml0", "/other/amdgpu129 (deleted)", "/dev/nvmlctl")
    assert [bool(files.name_pattern().search(name)) for name in names] == [True, True, False]
    links = both.links()
    assert links.of("GPU-0", "GPU-1").bus is links.of("GPU-a0", "GPU-a1").bus is Link.SWITCH
    assert links.of("GPU-0", "GPU-a0").bus is Link.UNKNOWN


def test_all_makers_hear_of_the_kernel_log_and_each_accident_is_of_its_gpu(tmp_path: Path) -> None:
    written = round(time.monotonic() * 1e6)
    lines = (
        "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.",
        "amdgpu 0000:28:00.0: amdgpu: GPU reset begin!",
    )
    (tmp_path / "kmsg").write_text("".join(f"3,1,{written},-;{line}\n" for line in lines))
    green = Driver("nvml", nvidia_maker.MAKER, gpu(uuid="GPU-0", pci_bus_id="00000000:41:00.0"))
    red = Driver("amdgpu", amd_maker.MAKER, gpu(uuid="PCI-0", pci_bus_id="0000:28:00.0"))
    for driver in (green, red):
        driver.time = time.time()
    source = Sampler(combined(green, red), System(dev=str(tmp_path), slept=lambda: 0.0))
    source.open()
    wait_until(lambda: source.sample().accidents)
    found = [(one.kind.value, one.gpu_uuid) for one in source.sample().accidents]
    source.close()
    assert sorted(found) == [("error code", "GPU-0"), ("reset", "PCI-0")]
    assert green.heard == red.heard
    assert [len(heard) for heard in green.heard if heard] == [2]
