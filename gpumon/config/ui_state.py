"""The saved state of the screen: a small file in the user's state folder.

It is a convenience and must never cause an error: a file that is missing, corrupt or unreadable
counts as absent, and a failed write is ignored.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from gpumon.system.folders import Folder

NAME = "screen.json"
_MOST_BYTES = 4096


class UiState(msgspec.Struct, frozen=True):
    """The saved state.

    Attributes:
        host_strip: Whether the line with processor, memory and load of the machine is shown;
            ``None`` if the user never chose it.
    """

    host_strip: bool | None = None


def load(folder: Folder) -> UiState:
    """The saved state, or the defaults."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        descriptor = os.open(os.path.join(folder, NAME), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            return msgspec.json.decode(file.read(_MOST_BYTES), type=UiState)
    return UiState()


def store(folder: Folder, what: UiState) -> bool:
    """Save the state, readable by this user only, with an atomic replacement of the file.

    Returns:
        Whether that worked.
    """
    import tempfile
    from pathlib import Path

    place = Path(folder)
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The mode is 0600 from the start.
        descriptor, name = tempfile.mkstemp(prefix=f"{NAME}.", dir=place)
    except OSError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(what) + b"\n")
        Path(name).replace(place / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        return False
    return True
