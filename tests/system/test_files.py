"""One rule for every file with a secret: what is refused, and in which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.system.files import FileFault, read_secret, read_secret_line


def test_a_secret_is_the_line_of_a_file_with_any_permissions(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_bytes(b" secret-word\r\n")
    file.chmod(0o444)
    assert (read_secret(str(file)), read_secret_line(str(file))) == (
        b" secret-word\r\n",
        "secret-word",
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"s" * 2**16 + b"s", "is larger than 64 KiB, which no password or token is"),
        (b"", "should have one line, of printable ASCII characters"),
        (b"secret-word\nsecret-word", "should have one line, of printable ASCII characters"),
        ("secret-wörd".encode(), "should have one line, of printable ASCII characters"),
        (b"secret-word\x1b", "should have one line, of printable ASCII characters"),
        (b"secret-word\xa0", "should have one line, of printable ASCII characters"),
        (b"\x85secret-word\n", "should have one line, of printable ASCII characters"),
        (b"secret-word\x0c", "should have one line, of printable ASCII characters"),
    ],
    ids=["large", "empty", "lines", "letters", "control", "space", "next line", "form feed"],
)
def test_a_file_without_a_secret_line_is_refused_without_its_content(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(FileFault) as fault:
        read_secret_line(str(tmp_path / "token"))
    assert str(fault.value) == sentence


def test_a_folder_a_pipe_and_an_absent_file_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in (
        ("", "is a folder, and should be a file"),
        ("pipe", "is not a regular file"),
        ("absent", "cannot be read: No such file or directory"),
        ("a\0b", "is not the name of a file"),
    ):
        with pytest.raises(FileFault) as fault:
            read_secret(str(tmp_path / name))
        assert (str(fault.value), fault.value.is_absent) == (sentence, name == "absent")
