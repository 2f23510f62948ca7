"""The page of alerts before anything was reported: it lists what is watched."""

from __future__ import annotations

from gpumon.alerts.alert import read_alerts
from gpumon.config.settings import AlertTable
from gpumon.ui.view.alerts_page import alert_rows
from tests.build import NOON
from tests.ui.view.drawing import text_of


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
