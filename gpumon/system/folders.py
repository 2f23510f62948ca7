"""Where gpumon keeps what is a user's own: the configuration, and what it remembers.

As platformdirs has them; on Linux without it, since it takes longer to import than to find them.
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
    """Where the configuration and a person's own themes are."""
    if sys.platform == "linux":
        return _below(environ.get("XDG_CONFIG_HOME", ""), "~/.config")
    import platformdirs

    return platformdirs.user_config_dir("gpumon")


def state_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Where it is remembered what a screen was left like, and which signals were sent."""
    if sys.platform == "linux":
        return _below(environ.get("XDG_STATE_HOME", ""), "~/.local/state")
    import platformdirs

    return platformdirs.user_state_dir("gpumon")


def _below(told: str, usual: str) -> str:
    """The folder in the one that the environment tells, or in the usual one."""
    # As text: a Path takes longer to import than all else here.
    folder = told if os.path.isabs(told) else os.path.expanduser(usual)  # noqa: PTH111, PTH117 - see above
    return os.path.join(folder, "gpumon")
