"""Themes that nobody meant: a file is a theme, or it is refused in a sentence.

Configurations, filters and logs have theirs in ``tests/config/test_reading.py``,
``tests/filters/test_filters.py`` and ``tests/recording/csv/test_recording.py``.
"""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpumon.config.themes import ThemeLibrary
from gpumon.config.themes.files import ThemeError
from gpumon.config.themes.library import shipped_folder

GOOD = Path(shipped_folder(), "gpumon.toml").read_bytes()
PARTS = [b"[colours]\n", b"[dashboard]\n", b'base = "', b'"', b"#12", b"#1234567", b"=", b"\x00"]
edits = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 30),
        st.one_of(st.binary(max_size=8), st.sampled_from(PARTS)),
    ),
    max_size=4,
)


def read(folder: Path, content: bytes) -> None:
    path = folder / "mine.toml"
    path.write_bytes(content)
    told = str(path)
    try:
        ThemeLibrary(own=folder).read_path(path)
    except ThemeError as error:
        told = str(error)
    assert told.startswith(str(path))
    assert told.isprintable()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
@example(content=b'base = "mine"\n')
@example(content=b'base = "\\u001b[2J"\n')
@example(content=b"\xff\xfe")
@example(content=b"[colours]\npanel = [[[[1]]]]\n" + b"x=" + b"[" * 2000)
def test_any_bytes_are_a_theme_or_are_refused(tmp_path: Path, content: bytes) -> None:
    read(tmp_path, content)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=edits)
def test_a_mangled_theme_is_a_theme_or_is_refused(
    tmp_path: Path, edits: list[tuple[float, int, bytes]]
) -> None:
    content = GOOD
    for share, length, put in edits:
        place = int(share * len(content))
        content = content[:place] + put + content[place + length :]
    read(tmp_path, content)
