"""The demo in a real terminal: what a newcomer sees, presses, resizes and ends."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from gpumon.ui.view.timeline import SIGNS
from tests.demo import COARSE_DEMO
from tests.e2e.demo import READY, changed_demo, demo
from tests.screen import PATIENCE, Screen

GPUMON = [sys.executable, "-m", "gpumon"]
DEMO = [*GPUMON, "--demo"]
CAN_SEND = r"(no children|\+ \d+ child)[\s\S]*Send TERM"
"""The button has its name before it can be pressed: while children are looked for it cannot."""


def left_clean(screen: Screen) -> bool:
    """Whether the terminal is as it was found: settings, screen, cursor, mouse, keyboard."""
    end = bytes(screen.output)
    switched_off = (
        (b"\x1b[?1049h", b"\x1b[?1049l"),
        (b"\x1b[?25l", b"\x1b[?25h"),
        (b"\x1b[?1000h", b"\x1b[?1000l"),
        (b"\x1b[?1003h", b"\x1b[?1003l"),
        (b"\x1b[?1004h", b"\x1b[?1004l"),
        (b"\x1b[?2004h", b"\x1b[?2004l"),
        (b"\x1b[?7l", b"\x1b[?7h"),
    )
    return screen.attributes() == screen.attributes_before and all(
        end.rfind(off) >= end.rfind(on) for on, off in switched_off
    )


def test_the_demo_shows_every_card_and_says_that_it_is_a_demo() -> None:
    with Screen(DEMO) as screen:
        screen.wait(whole, "waiting for eight GPUs and eleven processes")
        text = screen.text()
        assert "free" in text
        assert "LOST" in text
        screen.quit()
        assert left_clean(screen)


def test_a_demo_in_which_a_process_was_ended_leaves_no_file(tmp_path: Path) -> None:
    places = {name: str(tmp_path) for name in ("TMPDIR", "XDG_STATE_HOME", "HOME")}
    with Screen(COARSE_DEMO, {**os.environ, **places}) as screen:
        screen.wait_for(READY)
        screen.press("/58204\rk", CAN_SEND)
        screen.press("\x1b[C\r", "came back")
        screen.quit()
        assert not [*tmp_path.rglob("*")]


def whole(screen: Screen) -> bool:
    """Whether a 24-line dashboard of the demo stands on the screen, each line in its place."""
    rows = screen.rows()
    return (
        rows[0].startswith(" gpumon  DEMO")
        and all(line.startswith(f" {index} H100") for index, line in enumerate(rows[2:10]))
        and rows[10].startswith("── 18 processes")
        and "COMMAND" in rows[11]
        and all(re.match(r"[ ▸] *[\d,]+ +\d+ \w", line) for line in rows[12:23])
        and rows[23].startswith(" q quit")
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_the_terminal_as_it_was(number: signal.Signals) -> None:
    with demo() as screen:
        screen.signal(number)
        assert screen.wait_end() == -number
        assert left_clean(screen)


SHELL = """
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if not job:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execvp(sys.argv[1], sys.argv[1:])
while os.WIFSTOPPED(status := os.waitpid(job, os.WUNTRACED)[1]):
    os.tcsetpgrp(0, os.getpgrp())
    print("the job has stopped", flush=True)
    sys.stdin.readline()
    os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A shell of one job, which Enter continues."""


@pytest.mark.parametrize("between", [[], ["sh", "-c", '"$@"; exit $?', "sh"]], ids=["", "script"])
def test_control_z_gives_the_terminal_back_and_going_on_takes_it_again(between: list[str]) -> None:
    with Screen([sys.executable, "-c", SHELL, *between, *COARSE_DEMO]) as screen:
        screen.wait_for(READY)
        for _ in range(2):
            screen.press("\x1a", "the job has stopped")
            assert left_clean(screen)
            screen.type("\n")
            screen.wait(lambda it: not left_clean(it), "waiting for the screen")
            screen.wait(whole, "waiting for the dashboard")
        screen.quit()
        assert left_clean(screen)


@pytest.mark.slow
@pytest.mark.parametrize("between", [[], ["sh", "-c", '"$@"; exit $?', "sh"]], ids=["", "script"])
def test_where_no_shell_could_continue_it_nothing_stops_it(between: list[str]) -> None:
    with Screen([*between, *COARSE_DEMO], lines=60 if not between else 24) as screen:
        screen.wait_for(READY)
        screen.press("\x1a", "cannot be suspended: no shell here could continue it")
        screen.signal(signal.SIGTSTP)
        if not between:
            nothing_offers_to_suspend_it(screen)
        screen.quit()
        assert left_clean(screen)


def nothing_offers_to_suspend_it(screen: Screen) -> None:
    text = screen.press("?", "Quit")
    assert "Ctrl+Z" not in text
    screen.press("q", READY)
    screen.press("\x10", "Search for commands")
    screen.press("suspend gpumon", "No matches found")
    screen.press("\x1b", READY)


def test_a_crash_restores_the_terminal_before_it_says_what_happened() -> None:
    crash = (
        "import gpumon.ui.screens.dashboard as dashboard\n"
        "def broken(self, step): raise RuntimeError('a bug for the test')\n"
        "dashboard.DashboardScreen.action_move = broken"
    )
    with changed_demo(crash) as screen:
        screen.wait_for(READY)
        screen.type("\x1b[B")
        assert screen.wait_end() == 1
        assert left_clean(screen)
        end = bytes(screen.output)
        assert end.rfind(b"a bug for the test") > end.rfind(b"\x1b[?1049l")


@pytest.mark.slow
def test_a_terminal_that_takes_no_output_does_not_keep_it_alive() -> None:
    with demo("-n", "0.1", columns=200, lines=50) as screen:
        screen.hold()
        # Each of these asks for a whole repaint by Textual itself: the pty and all queues fill up,
        # and its event loop blocks.
        for width in (190, 180) * 20:
            screen.resize(width, 50)
            screen.type("?")
            screen.type("q")
        screen.signal(signal.SIGTERM)
        assert screen.process.wait(PATIENCE) in (-signal.SIGTERM, 128 + signal.SIGTERM)
        assert screen.attributes() == screen.attributes_before


@pytest.mark.slow
def test_keys_on_a_terminal_that_takes_no_output_do_not_block_it() -> None:
    with demo("-n", "0.1") as screen:
        screen.hold()
        for _ in range(100):
            screen.type("\x1b[BPMC")
        screen.type("-")
        screen.type("q")
        # What gives the screen back is not taken either; the settings of the line are given back.
        assert screen.process.wait(PATIENCE) == 0
        assert screen.attributes() == screen.attributes_before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_moment_it_takes_the_terminal_gives_it_back(number: signal.Signals) -> None:
    with Screen(COARSE_DEMO) as screen:
        screen.wait(lambda it: b"\x1b[?1049h" in it.output, "waiting for the alternate screen")
        screen.signal(number)
        assert screen.wait_end() in (-number, 128 + number)
        assert left_clean(screen)
        assert b"Traceback" not in screen.output


def test_a_picture_that_was_held_is_followed_by_the_present_and_not_by_the_next_sample() -> None:
    with demo("-n", "60") as screen:
        screen.press("p", "PAUSED")
        screen.press_away("p", "PAUSED")
        screen.press_away("?", " q quit")
        screen.type("q")
        screen.wait(whole, "waiting for the dashboard")


def test_a_dropped_connection_ends_it() -> None:
    with demo() as screen:
        screen.hang_up()
        assert screen.process.wait(PATIENCE) in (-signal.SIGHUP, 128 + signal.SIGHUP)


def test_any_size_at_any_moment_shows_what_a_fresh_start_at_that_size_shows() -> None:
    with demo() as screen:
        for columns, lines in ((200, 50), (1, 1), (60, 15), (30, 5), (300, 80), (2, 60), (80, 24)):
            screen.resize(columns, lines)
        screen.wait(whole, "waiting for the dashboard at its last size")
        screen.resize(100, 24)
        held = screen.press("p", r"\A.{70,}PAUSED(.|\n)* q quit.* g jobs")
        # What a window cut off that was smaller for a moment is drawn again.
        for columns, lines in ((70, 24), (100, 12), (1, 1)) * 3:
            # Sooner than it looks, as a rule: it finds the size that it knows.
            screen.resize(columns, lines)
            screen.resize(100, 24)
            screen.wait(lambda it: it.text() == held, "waiting for the same picture")


@pytest.mark.slow
def test_a_size_that_is_told_late_does_not_stand_for_the_one_that_came_after_it() -> None:
    # Python calls a signal's function within another one: the second size is told first.
    nested = (
        "import fcntl, shutil, struct, termios\n"
        "def told(fallback=None, ask=shutil.get_terminal_size):\n"
        "    size = ask()\n"
        "    if size.columns == 120:\n"
        "        last = struct.pack('HHHH', 24, 80, 0, 0)\n"
        "        fcntl.ioctl(1, termios.TIOCSWINSZ, last)\n"
        "    return size\n"
        "shutil.get_terminal_size = told"
    )
    with changed_demo(nested, lines=30) as screen:
        screen.wait_for(READY)
        # It has its last size before anything is drawn for that.
        screen.resize(80, 24, told=(120, 30))
        screen.wait(lambda it: it.size() == (80, 24), "waiting for the second size")
        screen.wait(whole, "waiting for the dashboard at its last size")


def test_a_terminal_too_small_for_the_dashboard_gets_a_short_honest_view() -> None:
    with Screen(COARSE_DEMO, columns=5, lines=2) as screen:
        # What is wrong is shown first when not all cards fit.
        screen.wait_for(r"\n 6 ✖")
        for columns, lines, view in (
            (20, 3, r"\n 6 ✖ LOST"),
            (40, 6, r"\n 6 ✖ LOST[^\n]*–[\s\S]*\n… 4 more GPUs"),
            (80, 14, r"1 of 8 free · [^\n]*\n 0 ● busy[\s\S]*\n 6 ✖ LOST"),
            (59, 24, r"\A(?![^\n]*attention)[^\n]*s\n 0 ● busy[\s\S]*\n 6 ✖ LOST"),
        ):
            screen.resize(columns, lines)
            screen.wait_for(view)
        screen.quit()


def test_keys_for_a_table_that_is_not_there_do_nothing_but_say_why() -> None:
    with Screen(COARSE_DEMO, columns=40, lines=10) as screen:
        screen.wait_for(r"6 ✖ LOST")
        for key in "k/ ju":
            screen.press(key, r"too small for this: 60×15 at least")
        screen.press("+", r"a sample every 1s")
        screen.press("l", r"30s, 15m")
        screen.press_away("\x1b", r"30s, 15m")
        screen.resize(100, 24)
        screen.wait(whole, "waiting for the dashboard, as it was")
        assert "▸" not in screen.text()


@pytest.mark.slow
def test_a_key_for_a_process_says_what_helps_while_a_card_has_the_cursor() -> None:
    # What is said does not go by itself.
    lasting = "import gpumon.ui.screens.list_screen as it; it.MESSAGE_SECONDS = 3600"
    with changed_demo(lasting) as screen:
        screen.wait_for(READY)
        screen.press("\x1b[B\t", r"\n▸0 H100")
        screen.press("k", "the cursor is on a GPU, not on a process: Tab goes back")
        screen.press("\x1b[B", r"\n▸1 H100[\s\S]*\n q quit")
        screen.press("\tk", "no children|children")


def test_keys_and_clicks_sort_the_table_others_change_the_interval_and_control_c_quits() -> None:
    with Screen(COARSE_DEMO) as screen:
        text = screen.wait_for(READY)
        screen.press("P", "PID▲")
        screen.press("P", "PID▼")
        screen.press(">", "USER▲")
        screen.press("r", "USER▼")
        heading = next(y for y, line in enumerate(text.splitlines()) if "COMMAND" in line)
        screen.click(screen.rows()[heading].index("CPU%"), heading)
        screen.wait_for("CPU%▼")

        def descends(it: Screen) -> bool:
            end = it.rows()[heading].index("CPU%▼") + len("CPU%▼")
            shares = [
                int(row[:end].split()[-1]) for row in it.rows()[heading + 1 : -1] if row.strip()
            ]
            return shares == sorted(shares, reverse=True)

        screen.wait(descends, "waiting for the order")
        screen.press("-", r"0\.2s *$|0\.2s *\n")
        screen.press("--", r"0\.1s *\n")
        screen.press("+++", r" 1s *\n")
        screen.type("\x03")
        assert screen.wait_end() == 0
        assert left_clean(screen)


def test_keys_and_clicks_sort_the_users_and_leave_the_processes_as_they_were() -> None:
    with Screen(COARSE_DEMO, columns=80) as screen:
        text = screen.wait_for(READY)
        screen.press("uU", r"USER▲[\s\S]*\n +ann[\s\S]*\n +bo")
        screen.press("r", r"USER▼[\s\S]*\n +svc-llm")
        screen.type(">")
        heading = screen.wait_for("PROCS▼").splitlines()
        y = next(y for y, line in enumerate(heading) if "PROCS▼" in line)
        screen.click(heading[y].index("SHARE"), y)
        screen.wait_for(r"SHARE▼")
        screen.press("C", "CPU% is no column of users")
        screen.press("u", READY)
        # A click on a row selects it, and the wheel scrolls.
        lines = text.splitlines()
        heading_at = next(y for y, line in enumerate(lines) if "COMMAND" in line)
        pid = lines[heading_at + 3].split()[1]
        screen.click(20, heading_at + 3)
        screen.wait_for(rf"▸ *\S+ +{pid}")
        screen.wheel(20, heading_at + 2)
        screen.wait_for(r"─ 4–14 of 18")
        screen.wheel(20, heading_at + 2, down=False)
        screen.wait_gone(r"─ 4–14 of 18")


def test_the_cursor_stays_on_its_process_whatever_the_sort_does() -> None:
    with demo() as screen:
        text = screen.press("\x1b[B\x1b[B", r"▸.*erin")
        assert text.count("▸") == 1
        for key, heading in (
            ("C", "CPU%▼"),
            ("P", "PID▲"),
            ("U", "USER▲"),
            ("r", "USER▼"),
            ("M", "GPU-MEM▼"),
        ):
            screen.press(key, rf"{heading}[\s\S]*▸ *2 +38470 erin")
        screen.press_away("\x1b", "▸")


@pytest.mark.slow
def test_a_filter_that_arrives_in_one_packet_loses_no_letter_and_keys_after_it_are_commands() -> (
    None
):
    with demo() as screen:
        for keys in ("/dara", "j/dara", "/dor\x7f\x7fara", "/xx\x15dara"):
            screen.press(keys, r"\d of 18 processes · /dara ")
            screen.wait_for(r"\n / *dara *\n")
            screen.press("\x1b", rf"── 18 processes[\s\S]*{READY}")
        screen.press("/", "Enter keep")
        screen.press("dara/2\x7f\x7f\rP\x1b[B", r"PID▲[\s\S]*\n[^▸\n]* dara .*\n▸.* dara ")
        screen.press("/ bo\r/\x15bo\rr", r"of 18 processes · /bo [\s\S]*PID▼")


@pytest.mark.slow
def test_a_long_text_in_the_filter_line_is_cut_off_and_keys_stay_alive() -> None:
    with demo() as screen:
        # More than the terminal's own queue holds, typed or pasted.
        for paste in ("a" * 5_000, "\x1b[200~" + "a" * 30_000 + "\x1b[201~"):
            screen.press("/", "Enter keep")
            screen.press(paste, "a filter has fewer than 1000 characters")
            screen.press("\x15dara\r", r"of 18 processes · /dara ")
            screen.wait_gone("Enter keep")
            screen.press("\x1b", r"── 18 processes")


@pytest.mark.slow
def test_pause_holds_the_picture_and_after_it_and_other_screens_the_dashboard_is_whole() -> None:
    with demo("-n", "0.1") as screen:
        screen.type("p")
        held = screen.wait_for(r"PAUSED[\s\S]*paused; p resumes").splitlines()[1:-1]
        screen.press("o", "self ")
        assert screen.text().splitlines()[1:-1] == held
        screen.press_away("p", "PAUSED")
        screen.type("o")
        screen.wait(whole, "waiting for the dashboard after the pause")
        screen.press_away("?", " q quit")
        screen.type("q")
        screen.wait(whole, "waiting for the dashboard after the help")
        screen.press("\x10", "Search for commands")
        screen.press_away("\x1b", "Search for commands")
        screen.wait(whole, "waiting for the dashboard after the palette")


@pytest.mark.slow
def test_the_help_page_names_every_key_sign_and_metric() -> None:
    with demo(columns=110, lines=340) as screen:
        screen.type("?")
        for word in (
            *("Pause; in the past", "Sort by GPU-MEM", "Quit", "itself", "✖", "PCIe receive"),
        ):
            screen.wait_for(word)
        screen.wait_for("SM occupancy")
        text = screen.wait_for("Compute mode")
        # All that the bar of time can show.
        for glyph, about in SIGNS:
            assert re.search(rf"^ *{re.escape(glyph)} +{about}", text, re.MULTILINE)
        for word in (
            *("REWIND", "REPLAY", "PAUSED", "DEMO", "unattributed", "GPU-HOURS", "a log is being"),
        ):
            assert word in text
        screen.press("\x1b", READY)


@pytest.mark.slow
def test_help_from_a_page_explains_the_keys_of_that_page_first() -> None:
    with demo("--readonly", columns=120, lines=100) as screen:
        screen.press("\x1b[B\r", "Esc back")
        text = screen.press("?", r"Keys on this page: process 51022[\s\S]*Keys on the dashboard")
        here = text.partition("Keys on the dashboard")[0]
        assert "Show what looks like secrets" in here
        # It was started with --readonly.
        assert "End the process" not in here
        screen.press("q", r"Esc back .* y copy")


@pytest.mark.slow
def test_every_key_of_the_dashboard_is_found_by_its_name() -> None:
    with demo() as screen:
        screen.press("\x10", "Search for commands")
        screen.press("users and", "Users and their totals")
        screen.press("\r", "GPU-HOURS since")
        screen.press("\x10", "Search for commands")
        screen.press("longer inter", r"Longer interval[\s\S]*key \+")
        screen.press("\r", "a sample every 1s")
        screen.press("\x10", "Search for commands")
        screen.press("quit", r"Quit\n +key q")
        screen.type("\r")
        assert screen.wait_end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", ["2>/dev/null", "2>&-"])
def test_the_screen_appears_where_standard_error_is_not_the_terminal(elsewhere: str) -> None:
    shell = f"{sys.executable} -m tests.demo {elsewhere}"
    with Screen(["sh", "-c", shell]) as screen:
        screen.wait_for(READY)
        screen.quit()


def test_an_exported_size_does_not_stand_in_for_the_terminals_own() -> None:
    exported = {**os.environ, "COLUMNS": "61", "LINES": "16"}
    with Screen(COARSE_DEMO, env=exported, columns=120, lines=30) as screen:
        screen.wait(lambda it: it.rows()[29].startswith(" q quit"), "waiting for the footer")


@pytest.mark.slow
@pytest.mark.root  # or a limit of open files that root has raised
def test_keys_are_read_among_thousands_of_open_files() -> None:
    crowded = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2048,) * 2)\n"
        "kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]"
    )
    with changed_demo(crowded) as screen:
        screen.wait_for(READY)
        screen.press("\x1b[B", r"▸")
        screen.quit()
        assert left_clean(screen)
