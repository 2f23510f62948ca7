"""``?`` explains the state under the cursor, wherever a state stands on a screen."""

from __future__ import annotations

import pytest

from tests.demo import COARSE_DEMO
from tests.driver import Driver, h100
from tests.e2e.demo import demo
from tests.e2e.test_fleet import ALL, FLEET
from tests.e2e.test_past import samples_of, screen_of
from tests.screen import Screen

DOWN, ESCAPE, TAB = "\x1b[B", "\x1b", "\t"
TOP = r"type to search[^\n]*\n +"
PARTS = r"seen [\s\S]*since [\s\S]*means [\s\S]*could be [\s\S]*to do "


def ask(screen: Screen) -> None:
    """Open the help page, and wait until all of it is drawn."""
    footer = screen.rows()[-1].strip()
    assert footer
    screen.type("?")
    screen.wait(
        lambda shown: "type to search" in shown.text() and footer not in shown.text(),
        "waiting for the help page",
    )


def back(screen: Screen) -> None:
    screen.press_away(ESCAPE, "type to search")


def hot(driver: Driver) -> None:
    driver.cards[0].temperature = 90
    driver.cards[0].clock_event_reasons = 0x60


def cool(screen: Screen, driver: Driver) -> None:
    """Cool the GPU, and wait until gpumon has seen it."""
    driver.cards[0].temperature = 40
    driver.cards[0].clock_event_reasons = 0
    wait_for_samples(screen, driver)


def wait_for_samples(screen: Screen, driver: Driver) -> None:
    """Wait until twenty samples more have been taken, and judged by what is no first picture."""
    screen.wait_until_live()
    before = samples_of(driver)
    screen.wait(lambda _: samples_of(driver) > before + 20, "waiting for samples")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "lines", "arguments"),
    [(200, 50, []), (80, 24, ["--ascii"]), (60, 15, []), (60, 15, ["--ascii"])],
)
def test_a_gpu_under_the_cursor_is_explained_first(
    columns: int, lines: int, arguments: list[str]
) -> None:
    sign = r"\^" if arguments else "▲"
    with Screen([*COARSE_DEMO, *arguments], columns=columns, lines=lines) as screen:
        screen.wait_for(r"COMMAND[\s\S]*\n q quit")
        # The past of the demo, in which it has been stuck.
        screen.wait_for(r"stuck\?")
        screen.press(TAB + DOWN * 5, r"\n[▸>]5 H100 [\s\S]*\? why")
        ask(screen)
        screen.wait_for(
            rf"{TOP}{sign} GPU 5: stuck[\s\S]*100 % busy at 17 % of its power limit[\s\S]*seen "
        )
        # The search finds its parts like everything else on the page.
        screen.press("py-spy", r"to do +See whether the job still writes output")
        screen.press(ESCAPE, "type to search")
        back(screen)
        screen.wait_for(r"COMMAND[\s\S]*\n q quit")


@pytest.mark.slow
def test_a_process_and_the_pages_are_explained_and_without_a_cursor_the_keys_come_first() -> None:
    with demo() as screen:
        screen.wait_for(r"idle ≥?3h3\dm")
        ask(screen)
        screen.wait_for(TOP + "Find ")
        back(screen)
        screen.press("/20991\r", "▸ *3 +20991 ")
        ask(screen)
        screen.wait_for(
            rf"{TOP}◐ process 20991: idle ≥?3h3\dm[\s\S]*a notebook that was left open"
            r"[\s\S]*\n\n +Find "
        )
        back(screen)
        screen.press("\r", r"process 20991[\s\S]*Esc back")
        ask(screen)
        screen.wait_for(r"process 20991: idle[\s\S]*Keys on this page: process 20991")
        back(screen)
        screen.wait_for("Esc back")
        screen.press(ESCAPE, "▸ *3 +20991 ")
        screen.press(TAB + "\r", r"GPU 3[\s\S]*Esc back +\? why")
        ask(screen)
        screen.wait_for(rf"{TOP}◐ GPU 3: idle[\s\S]*{PARTS}[\s\S]*Keys on this page: GPU 3")


@pytest.mark.slow
def test_a_past_moment_is_explained_as_it_was() -> None:
    with Driver([h100()]) as driver:
        hot(driver)
        with screen_of(driver, columns=100, lines=24) as screen:
            screen.wait_for(r"hot: HW thermal")
            # Its clocks are read less often than it is sampled.
            wait_for_samples(screen, driver)
            screen.press("[", r"REWIND[\s\S]*hot: HW thermal")
            cool(screen, driver)
            screen.press(TAB, r"▸0")
            ask(screen)
            screen.wait_for(TOP + r"▲ GPU 0: hot[\s\S]*too hot \(90 °C\)[\s\S]*fans or filters")
            back(screen)
            screen.press_away("\x1b[F", "REWIND")
            screen.wait_for(r"▸0[\s\S]*○ free[\s\S]*\? why")
            ask(screen)
            screen.wait_for(TOP + r"○ GPU 0: free[\s\S]*gpumon run")


@pytest.mark.slow
def test_a_held_picture_is_explained_and_not_what_happened_since() -> None:
    with Driver([h100()]) as driver:
        hot(driver)
        with screen_of(driver, columns=100, lines=24) as screen:
            screen.wait_for(r"hot: HW thermal")
            screen.press("p", "PAUSED")
            cool(screen, driver)
            screen.press(TAB, r"▸0[\s\S]*\? why")
            ask(screen)
            screen.wait_for(TOP + r"▲ GPU 0: hot[\s\S]*too hot \(90 °C\)")


@pytest.mark.slow
def test_the_worst_state_of_a_host_is_explained_in_the_list_of_hosts() -> None:
    with Screen(FLEET) as screen:
        screen.wait_for(ALL)
        screen.press("E" + DOWN, r"\n▸gpu-04 [\s\S]*\n q quit")
        ask(screen)
        screen.wait_for(TOP + r"✖ gpu-04 GPU 6: LOST [\s\S]*Look for the XID[\s\S]*\n  Find ")
        back(screen)
        screen.press(DOWN, r"\n▸gpu-07 [\s\S]*\n q quit")
        ask(screen)
        screen.wait_for(TOP + r"gpu-07: down\n +no answer within 5 s[\s\S]*\n  Find ")
