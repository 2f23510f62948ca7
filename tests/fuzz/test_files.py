"""Files and texts that nobody meant: each is read, or refused in a sentence.

Themes have theirs in ``test_themes.py``; settings of every kind, filters, columns and logs in
``tests/config/test_reading.py``, ``tests/filters/test_filters.py``,
``tests/recording/csv/test_columns.py`` and ``tests/recording/csv/test_recording.py``.
``FUZZ_EXAMPLES=20000`` looks further, in those too.
"""

from __future__ import annotations

import gzip
import io
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpumon.alerts import alert
from gpumon.cli.config import template
from gpumon.cli.parser import make_parser
from gpumon.config import Settings, load
from gpumon.config.ui_state import NAME, UiState
from gpumon.config.ui_state import load as load_remembered
from gpumon.findings import conditions
from gpumon.host.procfs import stat_of
from gpumon.model.snapshot import Reserved
from gpumon.recording.csv.compression import head, open_file
from gpumon.recording.csv.recording import open_log
from gpumon.recording.history import History
from gpumon.recording.recording import RecordingError
from gpumon.report.output import print_report
from gpumon.scheduling.eligibility import Circumstances
from gpumon.scheduling.lock_folder import shared_folder
from gpumon.scheduling.locks import Locks, holder_sentence, lock
from gpumon.scheduling.queue import WaitQueue
from gpumon.scheduling.requirements import Requirements
from gpumon.system.zstandard import zstd
from gpumon.text.formatting import cell_width
from gpumon.text.time_parsing import MomentError, parse_moment
from gpumon.ui.view.dashboard_rows import Dashboard
from gpumon.ui.view.dashboard_view import View
from tests.build import NOON, gpu, snapshot
from tests.recording.csv.test_recording import GOOD, LISTS

NOTES = ("damaged line", "values that no GPU can have", "twice in a sample", "left out")
"""What a report says of a damaged file."""
OFTEN = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
UUID = "GPU-0"
PARTS = (
    b'"',
    b"\n",
    b",",
    b"=",
    b"[",
    b"]]",
    b"\0",
    b"\xff",
    b"9" * 400,
    b"-1",
    b"nan",
    b"\x1b[2J",
)
edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 40),
        st.one_of(st.binary(max_size=8), st.sampled_from(PARTS)),
    ),
    max_size=5,
)
numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, -1, 1e308, -1e308, 2**63]),
)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20), lambda it: st.lists(it, max_size=3)
)


def mangled(content: bytes, changes: list[tuple[float, int, bytes]]) -> bytes:
    for share, length, put in changes:
        place = int(share * len(content))
        content = content[:place] + put + content[place + length :]
    return content


def is_a_sentence(text: str) -> bool:
    return text.isprintable() and text.endswith((".", "?"))


CONFIGURED = "\n".join(
    line if line.startswith("# ") else line.removeprefix("#")
    for line in (*template().splitlines(), *alert.template().splitlines())
).encode()


@OFTEN
@given(changes=edits)
@example(changes=[(0.0, 10**9, b"x = " + b"[" * 5000)])
def test_a_mangled_configuration_is_one_or_its_faults_are_told(
    tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    path = tmp_path / "gpumon" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(mangled(CONFIGURED, changes))
    loaded = load({"XDG_CONFIG_HOME": str(tmp_path)})
    assert isinstance(loaded.settings, Settings)
    assert all(one.sentence.isprintable() for one in loaded.errors)
    assert loaded.brief is None or loaded.brief.isprintable()


WORDS = ("-", "8", "h", "yesterday", "today", " ", "03:00", ":61", "2025-03-01", "T", "Z", "+99:00")


@given(
    text=st.text(max_size=20) | st.lists(st.sampled_from(WORDS), max_size=5).map("".join),
    now=st.floats(0, 4e9),
)
@example(text="-" + "9" * 5000 + "d", now=NOON)
@example(text="0001-01-01T00:00:00+23:59", now=NOON)
def test_any_text_is_a_moment_or_is_refused_in_a_sentence(text: str, now: float) -> None:
    told = "."
    try:
        assert isinstance(parse_moment(text, now), float)
    except MomentError as error:
        told = str(error)
    assert is_a_sentence(told)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".zst", zstd.compress)])
@OFTEN
@given(changes=edits)
def test_a_mangled_packed_file_is_read_as_far_as_it_goes(
    ending: str, pack: object, tmp_path: Path, changes: list[tuple[float, int, bytes]]
) -> None:
    assert callable(pack)
    path = tmp_path / f"run.csv{ending}"
    path.write_bytes(mangled(pack(GOOD), changes))
    told = "."
    try:
        beginning = head(path, 100)
        with open_file(path).file as file:
            file.seek(0)
            # In small pieces it is read up to nearer the broken place.
            assert beginning.startswith(file.read(len(beginning)))
    except RecordingError as error:
        told = str(error)
    assert is_a_sentence(told)


@pytest.mark.slow
@OFTEN
@given(
    cards=edits,
    lists=edits,
    by=st.sampled_from(["gpu", "user", "process", "job"]),
    form=st.sampled_from(["table", "json", "csv"]),
)
def test_a_mangled_log_is_reported_on_or_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    cards: list[tuple[float, int, bytes]],
    lists: list[tuple[float, int, bytes]],
    by: str,
    form: str,
) -> None:
    (tmp_path / "run.csv").write_bytes(mangled(GOOD, cards))
    (tmp_path / "run.processes.csv").write_bytes(mangled(LISTS, lists))
    out = io.StringIO()
    status = print_report([str(tmp_path / "run.csv")], by=by, form=form, out=out, width=100)
    said = capsys.readouterr().err
    assert status in (0, 1)
    if status == 0 and form == "csv":
        # CSV has no place for notes, so damage is told beside it, and nothing else is.
        assert all(any(note in line for note in NOTES) for line in said.splitlines())
    else:
        assert bool(said) == (status == 1)
    assert "\x1b" not in out.getvalue() + said


NONSENSE = ("1e999", "1e300", "-1e300", "1e15", "nan", "-5", "0001-01-01T00:00:00Z")


@pytest.mark.parametrize("told", NONSENSE)
@pytest.mark.parametrize("column", ["timestamp", "elapsed [s]"])
def test_clocks_that_tell_nonsense_are_not_believed(column: str, told: str, tmp_path: Path) -> None:
    heading, *lines = [line.split(b",") for line in GOOD.splitlines()]
    lines[12][heading.index(column.encode())] = told.encode()
    path = tmp_path / "run.csv"
    path.write_bytes(b"\n".join(b",".join(line) for line in (heading, *lines)) + b"\n")
    with closing(open_log(path)) as tape:
        assert tape.first is not None
        assert tape.last is not None
        assert 0 <= tape.last - tape.first < 60
    out = io.StringIO()
    assert print_report([str(path)], out=out, width=100) == 0


def test_a_clock_that_was_set_back_for_ages_is_told_of_in_a_sentence(tmp_path: Path) -> None:
    heading, line, *_ = GOOD.splitlines(keepends=True)
    _, _, rest = line.partition(b",")
    stamps = (b"2190-01-01T00:00:00Z,", b"1980-01-01T00:00:00Z,") * 3
    path = tmp_path / "run.csv"
    path.write_bytes(heading + b"".join(stamp + rest for stamp in stamps))
    with pytest.raises(RecordingError, match="set back by more than a hundred years") as told:
        open_log(path)
    assert is_a_sentence(str(told.value))


@contextmanager
def locked(path: Path, content: bytes) -> Iterator[None]:
    """A file that somebody has locked, with this in it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        assert lock(descriptor)
        os.write(descriptor, content)
        yield
    finally:
        os.close(descriptor)


def our_note(fields: Mapping[str, object]) -> bytes:
    """What a holder writes down of itself, true where it can be looked up."""
    stat = stat_of("/proc", os.getpid())
    assert stat is not None
    true = {"pid": os.getpid(), "start_time": stat.id.start_time, "since": 1.0, "command": ""}
    return msgspec.json.encode({**true, **fields})


notes = st.one_of(
    st.binary(max_size=60),
    st.dictionaries(st.sampled_from(["pid", "start_time", "since"]), anything).map(our_note),
    st.fixed_dictionaries({"since": numbers, "command": st.text(max_size=40)}).map(our_note),
)


@OFTEN
@given(note=notes, width=st.sampled_from([20, 60, 100, 200]))
@example(note=our_note({"since": -1e308}), width=100)
@example(note=b"[" * 4096, width=100)
def test_whatever_a_holder_says_of_itself_fits_on_the_screen(
    tmp_path: Path, note: bytes, width: int
) -> None:
    locks = Locks(str(tmp_path / "locks"), {})
    try:
        assert locks.shared is not None
        with locked(locks.shared.path / f"{UUID}.lock", note):
            holder = locks.holders([UUID])[UUID]
    finally:
        locks.close()
    assert holder_sentence(holder, NOON).isprintable()
    kept = Reserved(UUID, None, holder.user, holder.pid, holder.since, holder.command)
    seen = msgspec.structs.replace(snapshot(NOON, gpu()), reserved=(kept,))
    history = History(conditions())
    history.add(seen)
    parts = Dashboard(history).rows(seen, View(interval=0.5), width, 24)
    for row in (*parts.header, *parts.gpus, *parts.footer):
        assert sum(cell_width(text) for text, _ in row) == width


asked = st.dictionaries(
    st.sampled_from(Requirements.__struct_fields__), anything, max_size=4
) | st.fixed_dictionaries({"least": st.integers(-2, 3), "most": st.integers(-2, 3)})


@OFTEN
@given(
    content=st.one_of(
        st.binary(max_size=60),
        asked.map(
            lambda it: msgspec.json.encode({"pid": os.getpid(), "wants": {"requirements": it}})
        ),
    ),
    busy=st.booleans(),
)
@example(
    content=b'{"pid": 1, "wants": {"requirements": {"least": 0, "most": 0, "total": 99999999999}}}',
    busy=True,
)
@example(content=b'{"pid": 1, "wants": {"requirements": {"least": 1, "most": 0}}}', busy=False)
def test_whatever_somebody_waits_for_it_keeps_nobody_from_choosing(
    tmp_path: Path, content: bytes, busy: bool
) -> None:
    folder = shared_folder(str(tmp_path / "locks"))
    assert folder is not None
    total = 10**9 if busy else 80 * 10**9
    try:
        with locked(folder.path / f"waiting-{time.monotonic_ns()}", content):
            kept = WaitQueue(folder).reserved_for(
                snapshot(NOON, gpu(memory_total=total)), Circumstances()
            )
            assert set(kept) <= {UUID}
        for name in folder.names():
            folder.remove(name)
    finally:
        folder.close()


@OFTEN
@given(content=st.binary(max_size=60) | anything.map(msgspec.json.encode))
@example(content=b"[" * 4096)
def test_a_broken_memory_of_the_screen_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert isinstance(load_remembered(tmp_path), UiState)


PARSER = make_parser()
OPTIONS = (
    *("-n", "-i", "--interval", "--gpus", "--count", "--free", "--model", "--at", "--from", "--to"),
    *("--speed", "--by", "--format", "--theme", "--columns", "--filter", "--user", "--free-for"),
    *("--memory", "--timeout", "--every", "--exclude", "--utilization", "--stable", "--", "-1"),
    *("log", "replay", "report", "select", "run", "wait", "theme", "doctor", "snapshot", "config"),
)
VALUES = (
    "0",
    "1-",
    "1-3,5",
    "-8h",
    "1e999",
    "nan",
    "99999999999999999999",
    "80G",
    "50%",
    "a:b",
    "",
)


@given(st.lists(st.one_of(st.sampled_from(OPTIONS), st.sampled_from(VALUES), st.text(max_size=8))))
def test_any_command_line_is_read_or_refused(words: list[str]) -> None:
    status: object = 0
    try:
        PARSER.parse_args(words)
    except SystemExit as end:
        status = end.code
    assert status in (0, 2)
