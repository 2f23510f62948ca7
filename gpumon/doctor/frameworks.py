"""PyTorch, TensorFlow and JAX: the CUDA or ROCm version each was built for, read from its files.

No framework is imported: that takes seconds and GPU memory, and fails when it is most needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor import check, failed, passed, unknown, warned
from gpumon.doctor.computing import cudnn_of_packages, driver_for, rocm_versions
from gpumon.doctor.context import exists, found, parse_version, read_text, resolved, unreadable
from gpumon.model.makers import Maker, maker_of, makers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, Machine

_STRING = r"""['"]([^'"]*)['"]"""
_ASSIGNED = re.compile(rf"^(__version__|cuda|hip|xpu)\b[^=\n]*=\s*(?:{_STRING}|None)", re.MULTILINE)
_TENSORFLOW = re.compile(rf"""['"](cuda|cudnn)_version['"]\s*[,:]\s*{_STRING}""")
_CUDA_BUILD = re.compile(r"""['"]is_cuda_build['"]\s*[,:]\s*True""")
_ROCM_BUILD = re.compile(r"""['"]is_rocm_build['"]\s*[,:]\s*True""")
_PLUGIN = re.compile(r"jax_cuda(\d+)_(?:plugin|pjrt)")
_ROCM_PLUGIN = re.compile(r"jax_rocm(\d)\d*_(?:plugin|pjrt)")
"""``jax-rocm60-plugin``, and from ROCm 7 on ``jax-rocm7-plugin`` (jax-ml/jax#33067)."""
_ENVIRONMENT_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX")
_OLD_JAXLIB = re.compile(r"\+cuda(\d+)")


class Build(Struct, frozen=True):
    """A framework in one environment."""

    folder: str  # Of the environment.
    version: str
    cuda: str | None  # Built for: ``12.4`` or ``12``; ``None`` without CUDA.
    extra: str = ""  # Further information.
    rocm: str | None = None  # Built for; empty if its version is unknown.
    xpu: str | None = None  # The version of Intel's compiler, for Intel's GPUs.

    @property
    def target(self) -> tuple[Maker | None, str]:
        """The maker of the GPUs that it computes on, and what it was built for."""
        if self.cuda is not None:
            return Maker.NVIDIA, f"CUDA {self.cuda}"
        if self.rocm is not None:
            return Maker.AMD, f"ROCm {self.rocm}".rstrip()
        if self.xpu is not None:
            return Maker.INTEL, f"Intel's GPUs (XPU {self.xpu})"
        return None, "no CUDA"


# The page "Get started" of pytorch.org, and the page "Installation" of docs.jax.dev.
_TORCH = {
    Maker.NVIDIA: "Run `pip install torch`: on Linux it includes CUDA.",
    Maker.AMD: 'Install the build for ROCm: the page "Get started" of pytorch.org has the command.',
    Maker.INTEL: "Install the build for XPU: pytorch.org has the command.",
}
_TENSORFLOW_ADVICE = {
    Maker.NVIDIA: "Run `pip install 'tensorflow[and-cuda]'`.",
    Maker.AMD: "Install tensorflow-rocm as ROCm's documentation says.",
    Maker.INTEL: "Intel's extension for TensorFlow supports some of its GPUs.",
}
_JAX_ADVICE = {
    Maker.NVIDIA: "Run `pip install 'jax[cuda12]'`, or cuda13 for newer drivers.",
    Maker.AMD: "Install JAX's plugin for ROCm as docs.jax.dev says.",
    Maker.INTEL: "Intel's extension for OpenXLA supports some of its GPUs.",
}


@check("torch")
def torch(context: DiagnosticContext) -> Result | None:
    """The CUDA, ROCm or XPU that PyTorch was built for, and whether such a GPU is there.

    Read from ``torch/version.py``, in the active environment first, then in those of ``PATH``, of
    gpumon and of the user.
    """
    return _judged(context, _torch, _TORCH)


@check("TensorFlow")
def tensorflow(context: DiagnosticContext) -> Result | None:
    """The same of TensorFlow, by its build information."""
    return _judged(context, _tensorflow, _TENSORFLOW_ADVICE)


@check("JAX")
def jax(context: DiagnosticContext) -> Result | None:
    """The same of JAX, by its installed plugins."""
    return _judged(context, _jax, _JAX_ADVICE)


def _judged(
    context: DiagnosticContext,
    read: Callable[[Path, str], Build | None],
    advice: Mapping[Maker, str],
) -> Result | None:
    builds = [
        build
        for prefix, folder in _environments(context.machine)
        if (build := read(folder, prefix)) is not None
    ]
    barred = unreadable(context.machine, _ENVIRONMENT_VARIABLES)
    if not builds and barred:
        return unknown("None found; some environments cannot be read.", "", *barred)
    if not builds:
        return None
    first = builds[0]
    details = (*map(_line, builds), *barred)
    makers = _makers(context)
    if makers and first.target[0] not in makers:
        return warned(
            f"{_built(first)}: it does not compute on these GPUs ({makers[0].value}).",
            advice[makers[0]],
            *details[1:],
        )
    if first.cuda is None:
        return passed(f"{_built(first)}.", *details[1:])
    built = parse_version(first.cuda)
    words = f"{first.version}, built for CUDA {first.cuda}"
    if context.cuda_version is None or built is None:
        return _not_compared(context, words, details)
    major, minor = context.cuda_version
    if built[0] > major:
        return failed(
            f"{words}; the driver supports CUDA up to {major}.{minor}.",
            f"Upgrade to {driver_for(built[0])}, or install a build for CUDA {major}.",
            *details,
        )
    if built > (major, minor):
        words += f", newer than the driver's {major}.{minor} but of the same major version"
    return passed(f"{words}.", *details)


def _built(build: Build) -> str:
    """Where a build is, and what it was built for."""
    maker, platform = build.target
    how = f"for {platform}" if maker else "without CUDA"
    return f"{build.version} in {build.folder} was built {how}"


def _not_compared(context: DiagnosticContext, words: str, details: tuple[str, ...]) -> Result:
    """The result if the driver's limit is unknown."""
    if not context.gpus_of(Maker.NVIDIA):
        return passed(
            f"{words}; without NVIDIA's driver there is nothing to compare it with.", *details
        )
    return unknown(f"{words}; the newest CUDA that the driver supports is unknown.")


def _makers(context: DiagnosticContext) -> tuple[Maker, ...]:
    """The makers of the GPUs that programs should compute on.

    The GPU of a processor is mostly there for the display: it counts if ROCm is installed.
    """
    makers = makers_of(
        [
            gpu
            for gpu in context.gpus
            if not gpu.memory_unified
            or maker_of(gpu.name) is Maker.NVIDIA
            or (maker_of(gpu.name) is Maker.AMD and rocm_versions(context.machine))
        ]
    )
    # NVIDIA's driver may fail while the others answer: that has checks of its own.
    silent = Maker.NVIDIA not in makers and any(card.driver == "nvidia" for card in context.cards)
    return (*makers, Maker.NVIDIA) if makers and silent else makers


def _line(build: Build) -> str:
    extra = f", {build.extra}" if build.extra else ""
    return f"{build.version}  {build.target[1]}{extra}  {build.folder}"


def _torch(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "torch/version.py")
    if text is None:
        return None
    known = dict(_ASSIGNED.findall(text))
    cudnn = cudnn_of_packages(folder)
    cuda = known.get("cuda") or None
    extra = "" if cudnn is None or cuda is None else f"cuDNN {cudnn}"
    version = known.get("__version__") or "unknown version"
    return Build(prefix, version, cuda, extra, known.get("hip") or None, known.get("xpu") or None)


def _tensorflow(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "tensorflow/python/platform/build_info.py")
    if text is None:
        return None
    known = dict(_TENSORFLOW.findall(text)) if _CUDA_BUILD.search(text) else {}
    names = ("tensorflow", "tensorflow_gpu", "tensorflow_rocm")
    version = next(filter(None, (_distribution(folder, name) for name in names)), None)
    extra = f"cuDNN {known['cudnn']}" if known.get("cudnn") else ""
    rocm = "" if _ROCM_BUILD.search(text) else None
    return Build(prefix, version or "unknown version", known.get("cuda"), extra, rocm)


def _jax(folder: Path, prefix: str) -> Build | None:
    version = _distribution(folder, "jax")
    if version is None:
        return None
    cuda = _newest_plugin(folder, _PLUGIN)
    if cuda is None and (old := _OLD_JAXLIB.search(_distribution(folder, "jaxlib") or "")):
        cuda = old[1]
    return Build(prefix, version, cuda, rocm=_newest_plugin(folder, _ROCM_PLUGIN))


def _newest_plugin(folder: Path, plugin: re.Pattern[str]) -> str | None:
    """The newest version for which there is such a plugin of JAX."""
    files = map(plugin.match, (path.name for path in found(folder, "jax_*.dist-info")))
    return max((match[1] for match in files if match), key=int, default=None)


def _distribution(folder: Path, name: str) -> str | None:
    """The version of an installed distribution, from its metadata folder."""
    for path in found(folder, f"{name}-*.dist-info"):
        version = path.name[len(name) + 1 : -len(".dist-info")]
        if version[:1].isdecimal():
            return version
    return None


def _environments(machine: Machine) -> Iterator[tuple[str, Path]]:
    """Python environments that a program started from here may use, the likeliest first.

    Yields:
        The name of the environment's folder, and a folder of packages in it.
    """
    seen: set[Path] = set()
    for prefix in _prefixes(machine):
        for folder in _package_folders(machine, prefix):
            real = resolved(folder)
            if real not in seen:
                seen.add(real)
                yield prefix, folder


def _prefixes(machine: Machine) -> Iterator[str]:
    for variable in _ENVIRONMENT_VARIABLES:
        yield from (folder.rstrip("/") for folder in machine.folders(variable))
    for folder in machine.folders("PATH"):
        if any(exists(machine.path(f"{folder}/{python}")) for python in ("python", "python3")):
            yield folder.rstrip("/").rpartition("/")[0] or "/"
    yield machine.prefix
    yield from (f"{home.rstrip('/')}/.local" for home in machine.folders("HOME"))


def _package_folders(machine: Machine, prefix: str) -> Iterator[Path]:
    for pattern in ("lib*/python3*/site-packages", "lib/python3*/dist-packages"):
        yield from reversed(machine.folder(prefix, pattern))
