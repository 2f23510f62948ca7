"""The device files of GPUs, as a backend defines them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from gpumon.model.snapshot import Gpu

_MINOR = "{minor}"


class DeviceFiles(Struct, frozen=True):
    """The device files of one driver.

    Attributes:
        gpu: Path of the device file of one GPU; ``{minor}`` is replaced with its minor number.
        prefix: Prefix of the paths of all device files, of the GPUs and of the driver itself.
    """

    gpu: str
    prefix: str

    def path_of(self, gpu: Gpu) -> str | None:
        """Path of the device file of a GPU; ``None`` if its minor number is unknown."""
        if gpu.minor_number is None:
            return None
        return self.gpu.replace(_MINOR, str(gpu.minor_number))

    def name_pattern(self) -> re.Pattern[str]:
        """Matches the end of a path to a GPU's device file in any folder."""
        before, _, after = self.gpu.rpartition("/")[2].partition(_MINOR)
        return re.compile(rf"/{re.escape(before)}[0-9]+{re.escape(after)}(?: \(deleted\))?$")
