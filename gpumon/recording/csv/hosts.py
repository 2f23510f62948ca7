"""The hosts in a log of several machines, and the rows of one of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpumon.model.metrics import Unit
from gpumon.recording.csv.columns import cell
from gpumon.recording.csv.compression import head, is_packed
from gpumon.recording.csv.headings import LONGEST_LINE, cells_of, first_header
from gpumon.recording.recording import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from gpumon.recording.csv.files import LogFiles
    from gpumon.recording.csv.headings import Header

_MOST_NAMED = 32
_PIECE = 2**18
_MOST_PIECES = 128
"""Pieces of a log in which its hosts are looked for."""


class HostFilter:
    """Tells the rows of one host from all others."""

    def __init__(self, host: str) -> None:
        self._text = cell(host, Unit.TEXT)
        self._known: dict[Header, Callable[[bytes], bool] | None] = {}

    def of(self, header: Header) -> Callable[[bytes], bool] | None:
        """Whether a line below a header is of the host; ``None`` if rows do not tell their host."""
        if header not in self._known:
            self._known[header] = self._filter(header)
        return self._known[header]

    def _filter(self, header: Header) -> Callable[[bytes], bool] | None:
        place, text = header.places.get("host"), self._text
        if place is None:
            return None
        needle = f",{text}".encode()
        if place == header.width - 1:
            return lambda line: line.rstrip(b"\r").endswith(needle)

        def keep(line: bytes) -> bool:
            if text.encode() not in line:
                return False
            cells = cells_of(line)
            return len(cells) > place and cells[place] == text

        return keep


def hosts_in(parts: Sequence[LogFiles]) -> set[str]:
    """The hosts in the parts of a log; in a very long one some may not be found.

    Raises:
        RecordingError: A part is no log.
    """
    found: set[str] = set()
    each = max(1, _MOST_PIECES // max(1, len(parts)))
    for part in parts:
        header = _header(part.gpus)
        place = header.places.get("host")
        if place is None:
            continue
        for piece in _pieces(part.gpus, each):
            # The first and the last line may be cut.
            for line in piece.split(b"\n")[1:-1]:
                cells = cells_of(line)
                if len(cells) == header.width and cells[place]:
                    found.add(cells[place])
    return found - {"host", "hostname"}


def _pieces(path: Path, most: int) -> Iterable[bytes]:
    """Pieces of a file, evenly over all of it; of a compressed one its beginning."""
    if is_packed(path):
        yield head(path, most * _PIECE)
        return
    size = path.stat().st_size
    step = max(_PIECE, size // most)
    with path.open("rb") as file:
        for place in range(0, size, step):
            file.seek(place)
            yield file.read(_PIECE)
        file.seek(max(0, size - _PIECE))
        yield file.read(_PIECE)


def readable(parts: Sequence[LogFiles]) -> Sequence[LogFiles]:
    """The parts of a log that have a header, as a broken part does not affect the others.

    All parts if none has one: then reading them says why.
    """
    found = []
    for part in parts:
        with suppress(RecordingError):
            _header(part.gpus)
            found.append(part)
    return found or parts


def has_several(path: Path) -> bool:
    """Whether a GPU file is of a log of several machines, which may still have one only.

    Raises:
        RecordingError: It is no log.
    """
    return _header(path).several


def _header(path: Path) -> Header:
    return first_header(head(path, LONGEST_LINE), str(path), processes=False)[1]


def in_words(hosts: Iterable[str | None]) -> str:
    """The names of hosts for a sentence; not all of very many."""
    names = sorted(host for host in hosts if host is not None)
    if not names:
        return "hosts without a name"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
