"""The user's configuration: ``config.toml``, and the variables ``GPUMON_…``.

The command line overrides the environment, the environment the file, the file the defaults. Each
invalid value is reported, and its default applies: a broken file never keeps gpumon from starting.
Without a file or variable, nothing is imported for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.config.settings import VARIABLES, ConfigError, Loaded, Settings
from gpumon.system.folders import config_folder, is_absent

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLES", "ConfigError", "Loaded", "Settings", "config_path", "load"]


def config_path(environ: Mapping[str, str] = os.environ) -> str:
    """The path of the file, existing or not."""
    return os.path.join(config_folder(environ), "config.toml")


def load(environ: Mapping[str, str] = os.environ) -> Loaded:
    """The settings, and the errors in them; never raises for either."""
    path = config_path(environ)
    if is_absent(path) and not any(environ.get(name) for name in VARIABLES):
        return Loaded(path)
    from gpumon.config.reading import read

    return read(path, environ)
