"""The saved state of the screen: a small file in the user's state folder.

It is a convenience and must never cause an error: a file that is missing, corrupt or unreadable
counts as absent, and a failed write is ignored.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

import msgspec

from gpumon.system.files import beginning, replace_file

if TYPE_CHECKING:
    from gpumon.system.folders import Folder

NAME = "screen.json"
_MOST_BYTES = 4096


class UiState(msgspec.Struct, frozen=True):
    """The saved state."""

    # Whether the host line is shown; ``None`` if the user never chose it.
    host_strip: bool | None = None


def load(folder: Folder) -> UiState:
    """The saved state, or the defaults."""
    with contextlib.suppress(OSError, msgspec.MsgspecError, RecursionError):
        data = beginning(os.path.join(folder, NAME), _MOST_BYTES)
        return msgspec.json.decode(data, type=UiState)
    return UiState()


def store(folder: Folder, what: UiState) -> bool:
    """Save the state, readable by this user only, with an atomic replacement of the file.

    Returns:
        Whether that worked.
    """
    try:
        replace_file(os.path.join(folder, NAME), msgspec.json.encode(what) + b"\n")
    except OSError:
        return False
    return True
