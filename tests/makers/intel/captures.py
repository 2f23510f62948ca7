"""Intel GPUs as files of ``/sys``, made of public captures and of the kernel's documents.

Each number has its source beside it; short names: ``nvtop#493`` is issue 493 of Syllo/nvtop,
likewise ``LACT#893`` (ilya-zlobintsev/LACT), ``btop#1457`` (aristocratos/btop), ``pi#695`` and
``pi#510`` (geerlingguy/raspberry-pi-pcie-devices), ``xpum#72`` (intel/xpumanager), ``smc#45``
(hakandundar34coding/system-monitoring-center), ``framework#263``
(FrameworkComputer/SoftwareFirmwareIssueTracker). Where a capture has no number of a file that the
driver has, the value is one of the test's own, marked as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.makers.drm.trees import Tree

ROOT_PORT, UPPER_PORT, LOWER_PORT = "0000:00:01.1", "0000:01:00.0", "0000:02:01.0"
"""The bridges above a card in the drawing of nvtop#344: root port, upper and lower port of the
switch on the board."""

CARD = "0000:03:00.0"
PROCESSOR = "0000:00:02.0"

BRIDGE = {"vendor": "0x8086\n", "class": "0x060400\n"}


def _files(prefix: str = "", **values: object) -> dict[str, str]:
    """Files of one line whose paths begin alike."""
    return {f"{prefix}{name}": f"{value}\n" for name, value in values.items()}


def _link(speed: float, width: int) -> dict[str, str]:
    """A link that is at its best."""
    speeds = dict.fromkeys(("current_link_speed", "max_link_speed"), f"{speed} GT/s PCIe")
    return _files(**speeds, current_link_width=width, max_link_width=width)


def _throttle(prefix: str, *active: str, xe: bool) -> dict[str, str]:
    """The reasons of drivers/gpu/drm/xe/xe_gt_throttle.c and .../i915/gt/intel_gt_sysfs_pm.c."""
    names = ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
    reasons = {name: int(name in active) for name in names}
    reason = "reason_" if xe else ""
    return _files(prefix, status=int(bool(active))) | _files(f"{prefix}{reason}", **reasons)


OWN_LINK = _link(2.5, 1)
"""The GPU and the lower port tell this whatever the slot is: nvtop#344, pi#695."""


def add_switch(tree: Tree) -> tuple[str, ...]:
    """Add the bridges above a card; returns the parents of the card."""
    # The slot has 4.0 and 16 lanes; the card's upper port can do that, too (the card is at its best
    # there, which nvtop#344 calls "Correct"). The numbers are the test's own.
    tree.pci(ROOT_PORT, {**BRIDGE, **_link(16.0, 16)})
    tree.pci(UPPER_PORT, {**BRIDGE, **_link(16.0, 16)}, (ROOT_PORT,))
    tree.pci(LOWER_PORT, {**BRIDGE, **OWN_LINK}, (ROOT_PORT, UPPER_PORT))
    return ROOT_PORT, UPPER_PORT, LOWER_PORT


def sysfs_files(device: str, files: dict[str, str]) -> dict[str, str]:
    return {
        "vendor": "0x8086\n",
        "device": f"{device}\n",
        "class": "0x030000\n",
        **_files("power/", control="auto", runtime_status="active"),
        **OWN_LINK,
        **files,
    }


def a770_i915(tree: Tree) -> Path:
    """Arc A770 with ``i915``: 190 W is the limit in xpum#72."""
    gt = "drm/card0/gt/gt0/"
    files = {
        # The clocks, the energy, the fan and the temperature are the test's own.
        **_files(f"{gt}rps_", act_freq_mhz=600, cur_freq_mhz=600),
        **_files(f"{gt}rps_", max_freq_mhz=2200, RP0_freq_mhz=2400),
        **_throttle(f"{gt}throttle_reason_", xe=False),
        **_files("hwmon/hwmon4/", name="i915", energy1_input=5_000_000_000),
        **_files("hwmon/hwmon4/power1_", max=190_000_000, rated_max=190_000_000),
        # nvtop#331: since Linux 6.12 the fan, and later the temperature.
        **_files("hwmon/hwmon4/", fan1_input=1200, temp1_input=46000, in0_input=725),
        # Documentation/ABI/testing/sysfs-driver-intel-i915-hwmon: one part of the GPU.
        **_files("hwmon/hwmon3/", name="i915_gt0", energy1_input=77),
    }
    return tree.card(CARD, "i915", sysfs_files("0x56a0", files), parents=add_switch(tree))


def a750_xe(tree: Tree) -> Path:
    """Arc A750 with ``xe``, which tells the energy of the package only (nvtop#347)."""
    gt = "tile0/gt0/freq0/"
    files = {
        **_files(gt, act_freq=0, max_freq=2400, rp0_freq=2400),
        **_throttle(f"{gt}throttle/", xe=True),
        **_files("hwmon/hwmon5/", name="xe", energy2_input=1_000_000, energy2_label="pkg"),
        # Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon: 0 is a disabled limit.
        **_files("hwmon/hwmon5/", power1_max=0, power2_max=190_000_000),
    }
    return tree.card(CARD, "xe", sysfs_files("0x56a1", files), parents=add_switch(tree))


def b580_files() -> dict[str, str]:
    """The files of an Arc B580 (LACT#893): the media part idles at 0 of 1500 MHz."""
    main, media = "tile0/gt0/freq0/", "tile0/gt1/freq0/"
    return sysfs_files(
        "0xe20b",
        {
            **_files(main, act_freq=2850, rp0_freq=2850),  # the test's own
            **_files(media, act_freq=0, cur_freq=1200, min_freq=1200, max_freq=1500),
            **_files(media, rp0_freq=1500, rpa_freq=1217, rpe_freq=400, rpn_freq=400),
            **_throttle(f"{main}throttle/", "pl1", "thermal", xe=True),
            **_files("hwmon/hwmon6/", name="xe", energy1_input=0, energy1_label="card"),
            # Channels of the ABI document; limits of the temperature since Linux 7.0. Test's own.
            **_files("hwmon/hwmon6/temp2_", input=51000, label="pkg", crit=100000),
            **_files("hwmon/hwmon6/", temp2_emergency=105000, fan1_input=500),
            **_files("hwmon/hwmon6/temp3_", input=58000, label="vram"),
        },
    )


def b580_xe(tree: Tree) -> Path:
    """Arc B580 in a slot."""
    return tree.card(CARD, "xe", b580_files(), parents=add_switch(tree))


def b60_xe(tree: Tree) -> Path:
    """Arc Pro B60 (nvtop#493): a cap of 200 W, critical at 400 W, no ``power1_max``."""
    files = {
        "hwmon/hwmon3/name": "xe\n",
        **_files("hwmon/hwmon3/power1_", label="card", cap=200_000_000, crit=400_000_000),
    }
    return tree.card(CARD, "xe", sysfs_files("0xe211", files), parents=add_switch(tree))


def b70_xe(tree: Tree) -> Path:
    """Arc Pro B70 (btop#1457): 8086:e223, which no table names; 414 J in 2.01 s."""
    files = {
        "hwmon/hwmon7/name": "xe\n",
        **_files("hwmon/hwmon7/energy1_", label="card", input=81_000_000_000),
        **_files("hwmon/hwmon7/energy2_", label="pkg", input=60_000_000_000),
        **_files("hwmon/hwmon7/power1_", label="card", cap=275_000_000),
    }
    return tree.card(CARD, "xe", sysfs_files("0xe223", files), parents=add_switch(tree))


def max_1550_xe(tree: Tree) -> Path:
    """Data Center GPU Max 1550: two tiles, and a link without a switch. Numbers are the test's."""
    files = {
        **_files("tile0/gt0/freq0/", act_freq=1600, rp0_freq=1600),
        "tile0/memory/freq0/max_freq": "3200\n",
        "tile1/gt1/freq0/act_freq": "1550\n",
        **_files("hwmon/hwmon2/", name="xe", energy1_input=9_000_000),
        **_link(32.0, 16),
    }
    return tree.card(CARD, "xe", sysfs_files("0x0bd5", files), parents=(ROOT_PORT,))


def uhd_i915(tree: Tree, device: str = "0x3e92") -> Path:
    """Processor graphics in smc#45, before Linux 5.18: 350 of 1150 MHz."""
    clocks = dict.fromkeys(("act", "cur", "min", "RP1", "RPn"), 350)
    clocks |= dict.fromkeys(("boost", "max", "RP0"), 1150)
    files = {
        "vendor": "0x8086\n",
        "device": f"{device}\n",
        "class": "0x030000\n",
        **{f"drm/card0/gt_{name}_freq_mhz": f"{value}\n" for name, value in clocks.items()},
    }
    return tree.card(PROCESSOR, "i915", files, parents=())


def b390_xe(tree: Tree) -> Path:
    """Arc B390 of a processor (framework#263): 1900 of 2500 MHz, held down by PL4 alone."""
    gt = "tile0/gt0/freq0/"
    files = {
        "vendor": "0x8086\n",
        "device": "0xb080\n",
        "class": "0x030000\n",
        **_files(gt, act_freq=1900, rp0_freq=2500),
        **_throttle(f"{gt}throttle/", "pl4", xe=True),
    }
    return tree.card(PROCESSOR, "xe", files, parents=())


XE_CLIENT = """drm-driver:     xe
drm-client-id:  3
drm-pdev:       0000:03:00.0
drm-total-system:       0
drm-resident-system:    0
drm-total-gtt:  192 KiB
drm-resident-gtt:       192 KiB
drm-total-vram0:        23992 KiB
drm-shared-vram0:       16 MiB
drm-active-vram0:       0
drm-resident-vram0:     23992 KiB
drm-cycles-rcs: 28257900
drm-total-cycles-rcs:   7655183225
drm-cycles-bcs: 0
drm-total-cycles-bcs:   7655183225
drm-cycles-vcs: 0
drm-total-cycles-vcs:   7655183225
drm-engine-capacity-vcs:        2
drm-cycles-ccs: 0
drm-total-cycles-ccs:   7655183225
drm-engine-capacity-ccs:        4
"""
"""The example in the kernel's ``drivers/gpu/drm/xe/xe_drm_client.c``, without some zeros."""

I915_CLIENT = """drm-driver:\ti915
drm-pdev:\t{bus}
drm-client-id:\t7
drm-total-system0:\t8 MiB
drm-resident-system0:\t6 MiB
drm-total-local0:\t64 MiB
drm-resident-local0:\t48 MiB
drm-engine-render:\t9288864723 ns
drm-engine-copy:\t2035071108 ns
drm-engine-video:\t0 ns
drm-engine-capacity-video:\t2
drm-engine-video-enhance:\t0 ns
drm-engine-compute:\t0 ns
"""
"""Keys of ``i915_drm_client_fdinfo()``; the memory is the test's own."""
