"""Checks of gpumon itself: its version and its files."""

from __future__ import annotations

import os
import platform
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon import __version__
from gpumon.config import load
from gpumon.doctor.result import passed, warned

if TYPE_CHECKING:
    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.result import Result


def version(case: DiagnosticContext) -> Result:
    """The version to name in a bug report."""
    return passed(
        "version",
        f"gpumon {__version__}, Python {platform.python_version()} in {case.machine.prefix}, "
        f"{platform.system()} {platform.release()} on {platform.machine()}.",
    )


def configuration(case: DiagnosticContext) -> Result:
    """Where the configuration is, and whether it is valid."""
    name = "configuration"
    environ = case.machine.environ
    loaded = load(environ)
    if loaded.complaints:
        return warned(
            name,
            f"{loaded.path}: some settings are invalid; their defaults apply.",
            "`gpumon config check` after each change.",
            *(complaint.sentence for complaint in loaded.complaints),
        )
    if not Path(loaded.path).exists():
        return passed(name, f"{loaded.path} is not there: everything is as by default.")
    return passed(name, f"{loaded.path}, understood.")


def state(_case: DiagnosticContext) -> Result:
    """Where the state is saved, and whether it can be written."""
    from gpumon.system.folders import state_folder

    name = "state"
    folder = Path(state_folder())
    if _writable(folder):
        return passed(name, f"{folder}: what the screen was left like, and every signal sent.")
    return warned(
        name,
        f"{folder} cannot be written: no state is saved, and signals are not logged.",
        "Make the folder yours, or name another with XDG_STATE_HOME.",
    )


def locks(case: DiagnosticContext) -> Result | None:
    """Where the shared locks of ``gpumon run`` are, and whether they are safe."""
    if os.name != "posix":
        return None
    from gpumon.scheduling.reservation.lock_folder import FolderError, shared_folder, usual_path

    name = "locks"
    asked = case.machine.environ.get("GPUMON_LOCK_DIR") or None
    path = usual_path() if asked is None else Path(asked)
    if not os.path.lexists(path):
        return passed(name, f"{path}: made when gpumon run first needs it.")
    try:
        folder = shared_folder(asked, make=False)
    except FolderError as error:
        return warned(
            name,
            f"{error}: gpumon run guards only against your own programs.",
            "Have the administrator make it anew: `sudo install -d -m 1777 FOLDER`; or name "
            "another, the same for all users, with GPUMON_LOCK_DIR.",
        )
    if folder is not None:
        everybody = folder.status().st_mode & stat.S_IWOTH
        folder.close()
        if not everybody:
            return warned(
                name,
                f"{path} is not open to everybody: gpumon run guards those who may not write "
                "there only against their own programs.",
                f"`chmod 1777 {path}`, unless all who use the cards may write there.",
            )
    return passed(name, f"{path}, shared by all users.")


def _writable(folder: Path) -> bool:
    """Whether the folder, or its nearest existing parent, is writable."""
    there = next((path for path in (folder, *folder.parents) if path.exists()), Path("/"))
    return os.access(there, os.W_OK | os.X_OK)
