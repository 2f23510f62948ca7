"""What a person has settled once and for all: ``config.toml``, and the variables ``GPUMON_…``.

The command line goes over the environment, the environment over the file, the file over the
defaults. Whatever is wrong is told, and its default holds: a broken file never keeps gpumon from
starting. Where there is neither file nor variable nothing is imported for any of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpumon.config.settings import ConfigError, Loaded, Settings
from gpumon.system.folders import config_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VARIABLES", "ConfigError", "Loaded", "Settings", "config_path", "load"]

VARIABLES = (
    "GPUMON_INTERVAL",
    "GPUMON_COLUMNS",
    "GPUMON_THEME",
    "GPUMON_READONLY",
    "GPUMON_UNITS",
)
"""The variables that are read; ``gpumon.config.table`` says how."""


def config_path(environ: Mapping[str, str] = os.environ) -> str:
    """Where the file is, or would be."""
    return os.path.join(config_folder(environ), "config.toml")


def load(environ: Mapping[str, str] = os.environ) -> Loaded:
    """What is settled, and what is wrong with how it was written; never raises for either."""
    path = config_path(environ)
    if not os.path.lexists(path) and not any(environ.get(name) for name in VARIABLES):
        return Loaded(path)
    from gpumon.config.reading import read

    return read(path, environ)
