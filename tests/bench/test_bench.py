"""The benchmark measures what it says: known work, known memory, known output."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.bench import tables
from tests.bench.line import Line, Pressed, Written
from tests.bench.machine import machine
from tests.bench.meters import cpu_seconds, pss_bytes, tree
from tests.bench.percentiles import percentile
from tests.bench.programs import DATA
from tests.bench.sight import amount, effects, first_sight, frames
from tests.known import known

BURNER = """
import os, sys, time
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
if len(sys.argv) > 1:
    burn(0.1)
    raise SystemExit
os.spawnl(os.P_WAIT, sys.executable, sys.executable, __file__, "child")
burn(0.1)
own, ended = time.process_time(), sum(os.times()[2:4])
print(own, ended, flush=True)
sys.stdin.read()
"""


def test_processor_time_is_what_a_program_and_its_ended_child_have_burned(tmp_path: Path) -> None:
    program = tmp_path / "burner.py"
    program.write_text(BURNER)
    with subprocess.Popen(
        [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as burner:
        own, ended = map(float, known(burner.stdout).readline().split())
        spent = cpu_seconds(burner.pid)
        burner.communicate()
    # Sums of the kernel's ticks, which binary fractions do not hold exactly.
    assert own >= 0.1 - 1e-9
    assert ended >= 0.1 - 1e-9
    assert own + ended <= spent + 0.001
    assert spent < own + ended + 0.05


def test_the_tree_has_children_of_children() -> None:
    child = "import subprocess; subprocess.run(['sleep', '600'])"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        try:
            deadline = time.monotonic() + 20
            while len(found := tree(parent.pid)) < 3 and time.monotonic() < deadline:
                os.sched_yield()
            assert len(found) == 3
        finally:
            for pid in reversed(tree(parent.pid)):
                os.kill(pid, 9)


def test_memory_is_what_a_program_has_filled() -> None:
    program = "import sys; kept = b'x' * 2**26; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        known(holder.stdout).readline()
        held = pss_bytes(holder.pid)
        holder.communicate()
    assert 2**26 < held < 2**26 + 2**25


def test_frames_are_counted_by_the_silence_between_them_and_need_something_to_see() -> None:
    output = [
        Written(0.5, b"too early"),
        Written(1.000, b"\x1b[1;1Hone"),
        Written(1.004, b" frame in two writes"),
        Written(1.1, b"\x1b[2;1Hanother"),
        Written(1.2, b"\x1b[?25l\x1b[0m\x1b[?2026$p"),
        Written(1.3, b"\x1b[?2026h\x1b[3;1Hthird"),
        Written(2.0, b"too late"),
    ]
    assert frames(output, 1.0, 2.0) == 3
    assert amount(output, 1.0, 2.0) == sum(len(one.data) for one in output[1:6])


def test_the_first_data_is_found_when_its_last_cell_is_drawn() -> None:
    output = [
        Written(0.1, b"\x1b[?2026$p\x1b[1;1Htemperature"),
        Written(0.2, b"\x1b[1;13H6"),
        Written(0.3, "\x1b[1;14H1°C".encode()),
    ]
    assert first_sight(output, DATA) == 0.3
    assert first_sight(output[:2], DATA) is None


def test_the_effect_of_a_key_is_the_next_sight_of_a_cursor_that_moved() -> None:
    output = [
        Written(0.9, "\x1b[5;1H▸".encode()),
        Written(1.02, b"\x1b[1;10Hanother frame"),
        Written(1.03, "\x1b[5;1H \x1b[6;1H▸".encode()),
        Written(2.5, "\x1b[6;1H▸".encode()),
        Written(3.2, "\x1b[6;1H \x1b[7;1H▸".encode()),
    ]
    pressed = [Pressed(1.0, b"j"), Pressed(2.0, b"j"), Pressed(3.0, b"j")]
    found = effects(output, pressed, lambda sight: sight.begins_with("▸"))
    assert found == [pytest.approx(0.03), None, pytest.approx(0.2)]


def test_a_cursor_has_moved_once_its_new_place_is_seen() -> None:
    output = [
        Written(0.9, "\x1b[5;1H▸".encode()),
        Written(1.03, "\x1b[6;1H▸".encode()),
        Written(1.05, b"\x1b[5;1H "),
        Written(2.04, "\x1b[5;1H▸".encode()),
    ]
    pressed = [Pressed(1.0, b"j"), Pressed(2.0, b"k")]
    found = effects(output, pressed, lambda sight: sight.begins_with("▸"))
    assert found == [pytest.approx(0.03), pytest.approx(0.04)]


def test_percentiles() -> None:
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile(list(range(1, 101)), 0.99) == 99
    assert percentile([7], 0.99) == 7


def test_a_slow_line_carries_what_it_says_and_nothing_is_lost() -> None:
    program = "print('x' * 3000)"
    with Line([sys.executable, "-c", program], dict(os.environ), rate=20_000) as line:
        line.read_until(20.0)
    assert b"".join(written.data for written in line.output).count(b"x") == 3000
    assert line.output[-1].at - line.output[0].at >= 2900 / 20_000


def test_a_program_is_answered_what_it_asks_of_a_terminal() -> None:
    program = (
        "import os, tty; tty.setraw(0);"
        r"os.write(1, b'\x1b[?2026$p'); answer = os.read(0, 64); print(answer)"
    )
    with Line([sys.executable, "-c", program], dict(os.environ)) as line:
        line.read_until(20.0)
    assert rb"'\x1b[?2026;2$y'" in b"".join(written.data for written in line.output)


def test_what_the_driver_does_is_counted_but_no_waiting_for_events() -> None:
    program = (
        "import pynvml\n"
        "pynvml.nvmlInit()\n"
        "pynvml.nvmlDeviceGetCount()\n"
        "events = pynvml.nvmlEventSetCreate()\n"
        "try:\n    pynvml.nvmlEventSetWait_v2(events, 50)\n"
        "except pynvml.NVMLError:\n    pass\n"
    )
    with machine(cards=2, processes=3) as on:
        subprocess.run([sys.executable, "-c", program], env=on.env(), check=True)
        every = sum(one.calls for one in on.driver.calls().values())
        calls, inside = on.calls()
        assert calls == every - 1
        assert inside < 0.05
        assert on.calls() == (0, 0.0)


def test_tables_go_to_their_place_and_nowhere_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    begin, end = tables.markers("mine")
    other = "\n".join(("", *tables.markers("measured")))
    readme.write_text(f"before\n\n{begin}\nold\n{end}\n\n{other}\nafter\n")
    tables.put(readme, tables.table(("", "ms"), [("one", "1")]), "mine")
    text = readme.read_text()
    assert other in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "|  | ms |\n|---|--:|\n| one | 1 |" in text


def test_a_program_that_has_closed_its_terminal_has_ended() -> None:
    """Its process may be there a little longer: what is measured then is nothing."""
    with Line(("sh", "-c", "exec <&- >&- 2>&-; sleep 100"), os.environ) as line:
        line.read_until(60.0)
        assert line.now < 60.0
        assert line.ended
