"""The links between NVIDIA's GPUs, on the simulated driver."""

from __future__ import annotations

from gpumon.makers.nvidia.links import read_links
from gpumon.model.topology import NO_KNOWN_LINKS, Joint, Link
from tests.driver import Driver, a100, gb10, h100, rtx4090, v100
from tests.driver.models import Model

UNKNOWN_ERROR = 999
LINKED = "nvmlDeviceGetNvLinkState"
ENDS = "nvmlDeviceGetNvLinkRemotePciInfo_v2"


def joints(driver: Driver) -> list[Joint]:
    """From the first card to each other."""
    found = read_links()
    first, *others = (str(card.uuid) for card in driver.cards)
    return [found.of(first, other) for other in others]


def read(*models: Model) -> list[Joint]:
    with Driver(list(models)) as driver:
        driver.attach()
        return joints(driver)


def test_at_an_nvswitch_all_links_connect_every_pair() -> None:
    found = read(*[h100()] * 8)
    buses = [Link.SWITCH, *[Link.HOST] * 2, *[Link.SYSTEM] * 4]
    assert found == [Joint(bus, Link.NVLINK, 18) for bus in buses]
    assert {joint.label for joint in found} == {"NV18"}


def test_direct_links_count_between_their_ends_only() -> None:
    # 12 links by turns to three others.
    found = read(*[a100(nvlink_peers=0b1111)] * 4)
    assert [joint.label for joint in found] == ["NV4"] * 3


def test_links_that_are_down_do_not_count() -> None:
    assert read(h100(nvlink_down=0b111), h100())[0].nvlinks == 15
    assert read(h100(), h100(nvlink_down=0b1))[0].nvlinks == 17
    assert read(v100(nvlink_peers=0b10, nvlink_down=0b11), v100(nvlink_peers=1))[0].nvlinks == 4


def test_gpus_that_nvlink_does_not_connect_have_the_bus() -> None:
    assert read(h100(), h100(nvlink_group=1)) == [Joint(Link.SWITCH)]
    assert read(rtx4090(), rtx4090(), gb10()) == [Joint(Link.SWITCH), Joint(Link.HOST)]


def test_a_gpu_alone_has_no_links() -> None:
    with Driver([h100()]) as driver:
        driver.attach()
        assert read_links().between == {}


def test_an_end_that_the_driver_does_not_name_is_a_switch() -> None:
    with Driver([h100(), h100()]) as driver:
        driver.attach()
        for card in driver.cards:
            card.fail(ENDS, UNKNOWN_ERROR)
        assert [joint.label for joint in joints(driver)] == ["NV18"]


def test_a_number_that_was_not_read_is_unknown() -> None:
    with Driver([h100(), h100()]) as driver:
        driver.attach()
        driver.cards[1].fail(LINKED, UNKNOWN_ERROR)
        (joint,) = joints(driver)
    assert joint == Joint(Link.SWITCH, Link.NVLINK, None)
    assert joint.label == "NV"


def test_nothing_is_known_of_a_lost_gpu() -> None:
    with Driver([h100(), h100(), h100()]) as driver:
        driver.attach()
        driver.cards[1].lost = True
        lost, other = joints(driver)
    assert (lost, other.label) == (Joint(), "NV18")


def test_a_driver_that_hangs_is_not_waited_for() -> None:
    with Driver([h100(), h100()]) as driver:
        driver.attach()
        driver.cards[0].hang(LINKED)
        assert read_links(patience=0.1) is NO_KNOWN_LINKS
        driver.cards[0].release()


def test_without_a_driver_nothing_is_known() -> None:
    with Driver([h100(), h100()]) as driver:
        driver.attach()
        driver.fail_init(9)
        assert read_links() is NO_KNOWN_LINKS
