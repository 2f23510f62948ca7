"""The user's folders for configuration and state.

The same paths as platformdirs; on Linux without it, because importing it takes longer than finding
them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    Folder: TypeAlias = str | os.PathLike[str]


def config_folder(environ: Mapping[str, str] = os.environ) -> str:
    """The folder of the configuration and the user's own themes."""
    if sys.platform == "linux":
        return _below(environ.get("XDG_CONFIG_HOME", ""), "~/.config")
    import platformdirs

    return platformdirs.user_config_dir("gpumon")


def state_folder() -> str:
    """The folder of the saved screen state and the audit log of signals."""
    if sys.platform == "linux":
        return _below(os.environ.get("XDG_STATE_HOME", ""), "~/.local/state")
    import platformdirs

    return platformdirs.user_state_dir("gpumon")


def _below(given: str, usual: str) -> str:
    """A folder below the one from the environment, or below the default one."""
    # As text: importing Path takes longer than everything else here.
    folder = given if os.path.isabs(given) else os.path.expanduser(usual)  # noqa: PTH111, PTH117 - see above
    return os.path.join(folder, "gpumon")


def is_absent(path: str) -> bool:
    """Whether there is certainly no such file, not even one that this user cannot reach."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
