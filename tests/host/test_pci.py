"""Whether a card sleeps, from a system file system built for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.host.pci import graphics_devices, runtime_status

VENDOR = "0x10de"


def add_device(
    sys: Path,
    name: str,
    vendor: str = VENDOR,
    class_: str = "0x030200",
    status: str | None = "active",
) -> None:
    device = sys / "bus/pci/devices" / name
    (device / "power").mkdir(parents=True)
    (device / "vendor").write_text(vendor + "\n")
    (device / "class").write_text(class_ + "\n")
    if status is not None:
        (device / "power/runtime_status").write_text(status + "\n")


@pytest.mark.parametrize("bus_id", ["00000000:1B:00.0", "0000:1b:00.0", "0000:1B:00.0"])
def test_a_sleeping_card_is_found_under_either_spelling(tmp_path: Path, bus_id: str) -> None:
    add_device(tmp_path, "0000:1b:00.0", status="suspended")
    add_device(tmp_path, "0000:1c:00.0", status="active")
    assert runtime_status(bus_id, str(tmp_path)) == "suspended"


def test_a_domain_of_more_than_four_digits_is_found(tmp_path: Path) -> None:
    add_device(tmp_path, "10000:01:00.0")
    assert runtime_status("00010000:01:00.0", str(tmp_path)) == "active"


@pytest.mark.parametrize(
    "bus_id",
    [
        *("00000000:1B:00.0", "00000000:2B:00.0"),  # it does not say, and there is none
        *("", "N/A", "../../../../etc", "0000:1b:00.0/../x", "\x1b[31m"),
    ],
)
def test_what_is_not_there_or_says_nothing_is_unknown(tmp_path: Path, bus_id: str) -> None:
    add_device(tmp_path, "0000:1b:00.0", status=None)
    assert runtime_status(bus_id, str(tmp_path)) is None


def test_only_graphics_cards_of_the_maker_are_listed(tmp_path: Path) -> None:
    assert graphics_devices(VENDOR, str(tmp_path)) == [], "there is no bus"
    add_device(tmp_path, "0000:c1:00.0", class_="0x030000")
    add_device(tmp_path, "0000:1b:00.0", class_="0x030200", status="suspended")
    add_device(tmp_path, "0000:1b:00.1", class_="0x040300")  # its sound
    add_device(tmp_path, "0000:1b:00.2", class_="0x0c0330")  # its USB
    add_device(tmp_path, "0000:05:00.0", class_="0x068000")  # an NVSwitch
    add_device(tmp_path, "0000:00:02.0", vendor="0x8086", class_="0x030000")
    assert graphics_devices(VENDOR, str(tmp_path)) == ["0000:1b:00.0", "0000:c1:00.0"]


def test_the_real_bus_can_be_read() -> None:
    for name in graphics_devices(VENDOR):
        assert Path("/sys/bus/pci/devices", name).exists()
