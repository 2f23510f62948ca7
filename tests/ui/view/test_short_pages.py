"""The pages of accidents, alerts, the topology and help: what is known, and what is not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gpumon.accidents import AccidentReport, report_of
from gpumon.alerts.alert import read_alerts
from gpumon.config.keymap import KEYMAP
from gpumon.config.settings import AlertTable
from gpumon.model.accidents import Accident, AccidentKind
from gpumon.model.topology import DeviceKind, Joint, Link, Topology, TopologyDevice
from gpumon.text.formatting import cell_width
from gpumon.ui.view.accidents_page import accident_rows
from gpumon.ui.view.alerts_page import alert_rows
from gpumon.ui.view.help_page import find, key_groups
from gpumon.ui.view.topology_page import topology_rows
from tests.build import NOON, gpu, process, snapshot
from tests.ui.view.drawing import lines_of, text_of

XID = Accident(NOON, AccidentKind.ERROR_CODE, "GPU-0", 31, 100, "python")
CHEN = replace(process(user="chen"), name="python")
JOINED = report_of(XID, snapshot(NOON - 1, processes=(CHEN,)), snapshot(NOON + 9))


def page(*reports: AccidentReport, width: int = 100, is_complete: bool = True) -> str:
    rows, owners = accident_rows(reports, 0, NOON - 3600, NOON + 60, width, is_complete=is_complete)
    lines = lines_of(rows)
    assert len(owners) == len(rows)
    assert {cell_width(line) for line in lines} == {width}
    assert all(line.isprintable() for line in lines)
    return "\n".join(line.rstrip() for line in lines)


def test_the_line_has_whose_it_was_what_left_and_what_is_gone() -> None:
    shown = page(JOINED)
    assert "XID 31" in shown
    assert shown.count("100 python of chen") == 4
    assert "≥ 24.0" in shown
    assert "ran for 1d00h" in shown


def test_what_is_not_known_is_said() -> None:
    unknown = report_of(XID, None, None)._replace(accident=replace(XID, pid=None))
    assert page(unknown).count("not known") == 2
    assert "nobody" in page(report_of(replace(XID, pid=None), snapshot(NOON - 1, gpu()), None))


def test_an_empty_page_says_since_when_nothing_is_known() -> None:
    assert "No accident is known since" in page()
    assert "not been searched completely" in page(is_complete=False)
    rows, _ = accident_rows((), None, None, NOON, 80, is_complete=True)
    assert "Nothing is recorded yet." in "".join(text for row in rows for text, _ in row)


def lines(*watched: str, alerts: tuple[AlertTable, ...] = ()) -> list[str]:
    found = read_alerts(alerts).alerts
    rows, owners = alert_rows((), None, watched, found, (), NOON, 80)
    assert owners == [None] * len(rows)
    assert {sum(len(text) for text, _ in row) for row in rows} == {80}
    return [text_of(row).strip() for row in rows]


def test_what_is_watched_stands_before_how_to_watch_more() -> None:
    values = {"name": "warm room", "when": "hot", "for": "5m", "do": ["bell"]}
    hot = AlertTable(values, "config.toml, line 1", dict.fromkeys(values, "config.toml, line 2"))
    shown = lines("GPU 3, until it is free", alerts=(hot,))
    assert shown[1] == "There are no notifications yet."
    at = [
        next(number for number, line in enumerate(shown) if line.startswith(beginning))
        for beginning in (
            "Watched with w, which cancels",
            "GPU 3, until it is free",
            "Alerts that are checked",
            "warm room: hot for 5m → bell",
            "w on a GPU notifies you when it is free",
        )
    ]
    assert at == sorted(at)


def test_without_any_it_says_how_to_be_notified() -> None:
    shown = lines()
    assert shown[1] == "There are no notifications yet."
    assert shown[3].startswith("w on a GPU notifies you when it is free")


HOSTILE = "eth\x1b[31m[red]\n" + "x" * 300


def topology(count: int, joint: Joint, *nics: str, node: int | None = 0) -> Topology:
    devices = [
        TopologyDevice(DeviceKind.GPU, f"GPU {index}", numa_node=node, cpus="0-47", index=index)
        for index in range(count)
    ]
    devices += [TopologyDevice(DeviceKind.NIC, name) for name in nics]
    joints = tuple(
        tuple(None if one == other else joint for other in range(len(devices)))
        for one in range(len(devices))
    )
    return Topology(tuple(devices), joints)


def matrix(shown: Topology, width: int = 100) -> list[str]:
    rows = topology_rows(shown, width)
    texts = lines_of(rows)
    assert {len(text) for text in texts} == {width}
    return [text.rstrip() for text in texts]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200, 1000])
def test_each_cell_is_shown_at_every_width(width: int) -> None:
    shown = matrix(topology(16, Joint(Link.SYSTEM, Link.NVLINK, 18)), width)
    for index in range(16):
        own = [line for line in shown if line.startswith(f"GPU {index} ")]
        cells = " ".join(line[6:] for line in own).split()
        assert cells.count("NV18") == 15
        assert cells.count("X") == 1
        assert cells[-1] == "0"


def test_only_words_of_the_matrix_are_explained() -> None:
    shown = matrix(topology(2, Joint(Link.SWITCH)))
    assert shown[:3] == [
        "       GPU0  GPU1  NUMA",
        "GPU 0     X   PIX     0",
        "GPU 1   PIX     X     0",
    ]
    assert shown[4:] == [
        "NUMA 0  processors 0-47",
        "PIX     through at most one PCIe switch",
    ]


def test_unknown_is_a_dash() -> None:
    shown = matrix(topology(2, Joint(), node=None))
    assert shown[1].split() == ["GPU", "0", "X", "–", "–"]
    assert shown[-1].split() == ["–", "unknown"]
    assert not any("processors" in line for line in shown)


def test_names_cannot_act_and_are_short() -> None:
    shown = "\n".join(matrix(topology(1, Joint(Link.NODE), HOSTILE)))
    assert "\x1b" not in shown
    assert "x" * 20 not in shown


def test_no_device_is_said() -> None:
    assert matrix(Topology((), ())) == ["There are no GPUs and no network adapters."]


SECTIONS = key_groups(
    (action, next(iter(action.on.values()))) for action in KEYMAP if any(action.on.values())
)
"""The keys of all screens."""

WORDS = {
    "k F9 Del": "kill terminate signal sigkill F9",
    "L": "record save export",
    "[": "history rewind",
    "p": "freeze pause",
    "/": "search find filter grep",
    "Enter": "details info",
    "< ,": "sort",
    "r": "order invert",
    "q": "quit exit",
    "e F2": "setup options columns fields",
    "T": "dark light colors",
    "t": "tree hierarchy",
    "u": "users",
    "space": "mark select",
    "+ =": "refresh rate",
    "- _": "delay",
    "1": "zoom",
    "4": "range",
    "s": "environment",
    "y": "clipboard",
    "w": "bell",
    "c": "chart",
    "? F1": "help manual",
    "Ctrl+P": "menu",
    "←": "collapse",
    "→": "expand",
}
"""Keys, and what somebody types for them who knows nvidia-smi, nvtop, nvitop, htop or btop."""


@pytest.mark.parametrize(
    ("typed", "keys"), [(typed, keys) for keys, words in WORDS.items() for typed in words.split()]
)
def test_a_key_is_found_by_what_others_call_it(typed: str, keys: str) -> None:
    found = [term for section in find(SECTIONS, typed) for term, _ in section.entries]
    assert keys in found


@pytest.mark.parametrize("typed", ["renice", "screenshot", "affinity", "strace", "overclock"])
def test_what_gpumon_cannot_do_is_not_found(typed: str) -> None:
    assert find(SECTIONS, typed) == []
