"""Checks of gpumon itself: its version and its files."""

from __future__ import annotations

import errno
import os
import platform
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.config import load
from gpumon.doctor import check, passed, warned
from gpumon.makers.machine import software

if TYPE_CHECKING:
    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext


@check("version")
def version(context: DiagnosticContext) -> Result:
    """The versions to name in a bug report."""
    return passed(
        f"{', '.join(software())} in {context.machine.prefix}, "
        f"{platform.system()} {platform.release()} on {platform.machine()}.",
    )


@check("configuration")
def configuration(context: DiagnosticContext) -> Result:
    """Where the configuration is, and whether it is valid."""
    environ = context.machine.environ
    loaded = load(environ)
    if loaded.errors:
        return warned(
            f"{loaded.path}: some settings are invalid; their defaults apply.",
            "Correct them, and run `gpumon config check` after each change.",
            *(error.sentence for error in loaded.errors),
        )
    if not os.path.lexists(loaded.path):
        return passed(f"{loaded.path} does not exist: the defaults apply.")
    return passed(f"{loaded.path} is valid.")


@check("state")
def state(_context: DiagnosticContext) -> Result:
    """Where the state is saved, and whether it can be written."""
    from gpumon.system.folders import state_folder

    folder = Path(state_folder())
    why = _why_not_writable(folder)
    if why is None:
        return passed(f"{folder} holds the last state of the screen and a log of the sent signals.")
    return warned(
        f"{folder} cannot be written ({why}): no state is saved, and signals are not logged.",
        "Make the folder writable, or set XDG_STATE_HOME to another one.",
    )


@check("locks")
def locks(context: DiagnosticContext) -> Result | None:
    """Where the shared locks of ``gpumon run`` are, and whether they are safe."""
    if os.name != "posix":
        return None
    from gpumon.scheduling.lock_folder import FolderError, shared_folder, usual_path

    asked = context.machine.environ.get("GPUMON_LOCK_DIR") or None
    path = usual_path() if asked is None else Path(asked)
    try:
        folder = shared_folder(asked, make=False)
    except FolderError as error:
        return warned(
            f"{error}: gpumon run reserves GPUs only among your own programs.",
            "Ask an administrator to create it again with `sudo install -d -m 1777 FOLDER`, or set "
            "GPUMON_LOCK_DIR to another folder for all users.",
        )
    if folder is None:
        return passed(f"{path}: gpumon run creates it when it needs it.")
    everybody = folder.status().st_mode & stat.S_IWOTH
    folder.close()
    if not everybody:
        return warned(
            f"{path} is not writable by everybody: for users who may not write there, gpumon "
            "run reserves GPUs only among their own programs.",
            f"Run `chmod 1777 {path}`, unless every user of the GPUs may write there.",
        )
    return passed(f"All users share {path}.")


def _why_not_writable(folder: Path) -> str | None:
    """Why a folder, or its nearest existing parent, cannot be written; ``None`` if it can be."""
    for path in (folder, *folder.parents):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            continue
        except OSError as error:
            return error.strerror
        if not stat.S_ISDIR(mode):
            return os.strerror(errno.ENOTDIR)
        may_write = os.access(path, os.W_OK | os.X_OK)
        return None if may_write else os.strerror(errno.EACCES)
    return os.strerror(errno.ENOENT)
