"""The makers of GPUs: the declaration of each, and the registry of their folders.

A maker is a package with a ``MAKER``: all that the rest of gpumon must know of it. The names of
products, which snapshots and logs both have, say whose a GPU is, so this works without a driver.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from gpumon.model.snapshot import Gpu

FOLDERS = ["gpumon.makers.nvidia", "gpumon.makers.amd", "gpumon.makers.intel"]
"""The packages of the makers, in the order of their GPUs.

A GPU whose name begins with no maker's is the first one's, and so are words without a GPU. Packages
are named and not imported: most of this program lies below them.
"""


class Maker:
    """A maker of GPUs, and the driver of these; each maker is an instance of a subclass.

    Declarations are imported by every command. What takes time to import is a reference,
    ``"module:name"``, which ``load`` follows when it is needed. A declaration that lacks something
    fails at import.
    """

    name: str  # On screen. Product names begin with it; the first maker's may lack it.
    backend: str  # How ``--backend`` calls the driver.
    pci_vendor: str  # The PCI vendor ID, as the kernel writes it.
    kernel_drivers: tuple[str, ...]  # Those whose GPUs gpumon shows.
    backend_class: str  # Refers to a ``GpuBackend``.

    # Whether the drivers belong to the DRM subsystem of the kernel: ``/sys`` lists their GPUs, and
    # they run nothing but GPUs.
    is_drm: bool = False
    pci_classes: tuple[str, ...] = ("0x03",)  # PCI base classes of its GPUs; 0x03 is a display.
    # Refers to a function of a GPU's folder in ``/sys`` and its PCI device ID: whether the GPU is
    # part of a processor. Such a GPU is left out beside others, unless ``--backend all`` is given.
    integrated: str | None = None
    device_file: str = "/dev/dri/renderD{minor}"  # Of a GPU, with its minor number.
    device_prefix: str = "/dev/dri"  # Of the paths of all device files.
    driver_files: tuple[str, ...] = ()  # Further device files, which are of the driver.
    # Refers to a function that returns the version of the driver in a sentence, within seconds;
    # ``None`` for a driver of the DRM subsystem, whose version is in ``/sys``.
    version: str | None = None

    # Words.
    brands: tuple[str, ...] = ()  # What short product names leave out after the maker's name.
    device: str = "gpu"  # In front of the index in Prometheus' label ``device``.
    cores: str = "core"  # Its shader processors, in front of "clock".
    clock_heading: str = "core MHz"  # At most eight cells.
    # The time in which a process used a GPU, in front of a percentage; at most three cells.
    load_word: str = "GPU"
    has_cuda: bool = False
    kernel_log: str = "the driver"  # What to look for in the kernel log.
    # What ``grep`` finds the driver's lines by; ``None`` for the names of all DRM drivers.
    log_pattern: str | None = None
    # Refers to a ``LineParser``: finds what the driver reports in the kernel log.
    log_parser: str | None = None
    reset: str | None = None  # A command that resets a GPU; ``None`` if only a reboot is sure.

    # The error codes of the driver, which are in ``Gpu.xid``: the word in front of a number, where
    # all are explained, and a reference to a dictionary of number to meaning, severity and advice.
    error_label: str = "error"
    error_catalogue: str = "the documentation of the driver"
    error_table: str | None = None
    # Refers to a function of a number and the text in the kernel log: what the text says of the
    # error, or ``None``.
    error_details: str | None = None

    # The variables that decide which GPUs a program sees. The first selects them for any program.
    variables: tuple[str, ...] = ("GPU_VISIBLE_DEVICES",)
    # Refers to a subclass of ``VisibleDevices``: what the variables mean.
    visible_devices: str = "gpumon.makers.visible_devices:VisibleDevices"
    # How to make certain which GPUs a variable selects; a batch system may have set it.
    certain_selection: str = "Name the GPUs by their UUIDs."

    # Refers to ``MakerChecks`` (``doctor/__init__.py``): what ``gpumon doctor`` examines.
    checks: str | None = None

    def __init_subclass__(cls) -> None:
        known = Maker.__annotations__
        for name in known:
            if not hasattr(cls, name):
                raise TypeError(f"{cls.__name__} lacks {name}")
        for name in vars(cls):
            if name not in known and not name.startswith("_"):
                raise TypeError(f"{cls.__name__} has no use for {name}")

    @property
    def main_variable(self) -> str:
        """The variable that selects its GPUs for any program."""
        return self.variables[0]

    @property
    def device_files(self) -> DeviceFiles:
        """The device files of its GPUs and drivers."""
        others = tuple([DeviceFiles(path, path, self) for path in self.driver_files])
        return DeviceFiles(self.device_file, self.device_prefix, self, others)

    @property
    def all_brands(self) -> tuple[str, ...]:
        """What short product names leave out."""
        return (f"{self.name} ", *self.brands)


@cache
def load(reference: str) -> Any:
    """What a reference refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


@cache
def makers() -> tuple[Maker, ...]:
    """All makers."""
    return tuple([load(f"{folder}:MAKER") for folder in FOLDERS])


def first_maker() -> Maker:
    """The maker of GPUs whose name says nothing else; texts that are for all are in its words."""
    return makers()[0]


@lru_cache(maxsize=256)
def maker_of(name: str | None) -> Maker:
    """The maker of a GPU with this product name.

    Old drivers of the first maker do not begin it with the maker's name (``GeForce GTX 1080``,
    ``Tesla V100``). The other backends do.
    """
    first, *others = makers()
    for maker in others:
        if name is not None and name.startswith(f"{maker.name} "):
            return maker
    return first


def gpus_of(maker: Maker, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs of a maker, by index."""
    own = [gpu for gpu in gpus if maker_of(gpu.name) is maker]
    return sorted(own, key=lambda gpu: gpu.index)


def makers_of(gpus: Sequence[Gpu]) -> tuple[Maker, ...]:
    """The makers of these GPUs, in the order of their first GPU."""
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    return tuple(dict.fromkeys(maker_of(gpu.name) for gpu in ordered))


_MINOR = "{minor}"


class DeviceFiles:
    """The device files of one driver, or of several."""

    def __init__(
        self,
        gpu: str,  # path of the file of one GPU; ``{minor}`` is replaced with its minor number
        prefix: str,  # of the paths of all files, of the GPUs and of the driver itself
        maker: Maker | None = None,  # of these GPUs; ``None`` where all GPUs are of this driver
        others: tuple[DeviceFiles, ...] = (),  # the files of further drivers
    ) -> None:
        self.gpu = gpu
        self.prefix = prefix
        self.maker = maker
        self.others = others

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
        import re

        names = {files.gpu.rpartition("/")[2] for files in (self, *self.others)}
        patterns = sorted(map(re.escape, names))
        numbers = "|".join(name.replace(re.escape(_MINOR), "[0-9]+") for name in patterns)
        return re.compile(rf"/(?:{numbers})(?: \(deleted\))?$")

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The prefixes of all drivers."""
        return tuple(dict.fromkeys(files.prefix for files in (self, *self.others)))


AUTO, ALL = "auto", "all"


def backends() -> tuple[str, ...]:
    """The values of ``--backend``."""
    return (AUTO, *(maker.backend for maker in makers()), ALL)


# Words


def short_name(name: str) -> str:
    """The name of a GPU without the maker and the brand: ``RTX 4090``, ``MI300X``.

    What names a model only with them keeps them: ``Radeon VII``, ``Intel Graphics``, ``Quadro
    T1000`` (``NVIDIA T1000`` is another model).
    """
    for brand in maker_of(name).all_brands:
        rest = name.removeprefix(brand).strip()
        if " " in rest or any(character.isdigit() for character in rest):
            name = rest
    return name.strip()


def is_same_name(name: str, other: str) -> bool:
    """Whether two names are of one model: newer drivers of the first maker put it in front."""
    maker = f"{first_maker().name} "
    return name == other or name.removeprefix(maker) == other.removeprefix(maker)


def metric_label(label: str, name: str | None) -> str:
    """The label of a metric in the words of the GPU's maker: ``Shader clock`` for ``SM clock``."""
    cores = maker_of(name).cores
    if not label.startswith("SM clock") or cores == "SM":
        return label
    return label.replace("SM", cores[0].upper() + cores[1:], 1)
