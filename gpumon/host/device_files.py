"""The device files of GPUs, as a backend defines them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.model.makers import Maker, maker_of

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu

_MINOR = "{minor}"


class DeviceFiles(Struct, frozen=True):
    """The device files of one driver, or of several."""

    gpu: str  # path of the file of one GPU; ``{minor}`` is replaced with its minor number
    prefix: str  # of the paths of all files, of the GPUs and of the driver itself
    maker: Maker | None = None  # of these GPUs; ``None`` where all GPUs are of this driver
    others: tuple[DeviceFiles, ...] = ()  # the files of further drivers

    def path_of(self, gpu: Gpu) -> str | None:
        """Path of the device file of a GPU; ``None`` if its minor number is unknown."""
        if gpu.minor_number is None:
            return None
        for files in (self, *self.others):
            if files.maker in (None, maker_of(gpu.name)):
                return files.gpu.replace(_MINOR, str(gpu.minor_number))
        return None

    def name_pattern(self) -> re.Pattern[str]:
        """Matches the end of a path to a GPU's device file in any folder."""
        names = {files.gpu.rpartition("/")[2] for files in (self, *self.others)}
        patterns = sorted(map(re.escape, names))
        numbers = "|".join(name.replace(re.escape(_MINOR), "[0-9]+") for name in patterns)
        return re.compile(rf"/(?:{numbers})(?: \(deleted\))?$")

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all drivers."""
        return tuple(dict.fromkeys(files.prefix for files in (self, *self.others)))
