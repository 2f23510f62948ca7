"""PyTorch, TensorFlow and JAX: the CUDA or ROCm version each was built for, read from its files.

No framework is imported: that takes seconds and GPU memory, and fails when it is most needed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - msgspec resolves annotations
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor import check, checks_of, passed, unknown, warned
from gpumon.doctor.context import exists, found, read_text, resolved, unreadable
from gpumon.model.makers import Maker, maker_of, makers, makers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpumon.doctor import Result
    from gpumon.doctor.context import DiagnosticContext, ExaminedMachine

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


_CUDNN = re.compile(r"^#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s+(\d+)", re.MULTILINE)


class Build(Struct, frozen=True):
    """A framework in one environment."""

    folder: str  # Of the environment.
    version: str
    # The versions of the platforms that it was built for, by ``MakerChecks.platform``; ``None``
    # without this platform, empty if its version is unknown.
    platforms: Mapping[str, str | None]
    extra: str = ""  # Further information.

    @property
    def maker(self) -> Maker | None:
        """The maker of the GPUs that it computes on."""
        versions = self.platforms
        found = (maker for maker in makers() if versions.get(checks_of(maker).platform) is not None)
        return next(found, None)

    @property
    def target(self) -> str:
        """What it was built for."""
        if self.maker is None:
            return "no CUDA"
        checks = checks_of(self.maker)
        return checks.platform_words.format(self.platforms[checks.platform]).rstrip()


@check("torch")
def torch(context: DiagnosticContext) -> Result | None:
    """The CUDA, ROCm or XPU that PyTorch was built for, and whether such a GPU is there.

    Read from ``torch/version.py``, in the active environment first, then in those of ``PATH``, of
    gpumon and of the user.
    """
    return _judged(context, _torch, "torch")


@check("TensorFlow")
def tensorflow(context: DiagnosticContext) -> Result | None:
    """The same of TensorFlow, by its build information."""
    return _judged(context, _tensorflow, "TensorFlow")


@check("JAX")
def jax(context: DiagnosticContext) -> Result | None:
    """The same of JAX, by its installed plugins."""
    return _judged(context, _jax, "JAX")


def _judged(
    context: DiagnosticContext,
    read: Callable[[Path, str], Build | None],
    name: str,
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
    wanted = _makers(context)
    if wanted and first.maker not in wanted:
        return warned(
            f"{_built(first)}: it does not compute on these GPUs ({wanted[0].name}).",
            checks_of(wanted[0]).frameworks.get(name, ""),
            *details[1:],
        )
    if first.maker is not None:
        checks = checks_of(first.maker)
        if checks.judge_build is not None:
            version = first.platforms[checks.platform] or ""
            return checks.judge_build(context, first, version, details)
    return passed(f"{_built(first)}.", *details[1:])


def _built(build: Build) -> str:
    """Where a build is, and what it was built for."""
    how = f"for {build.target}" if build.maker else "without CUDA"
    return f"{build.version} in {build.folder} was built {how}"


def _makers(context: DiagnosticContext) -> tuple[Maker, ...]:
    """The makers of the GPUs that programs should compute on."""
    found = makers_of(
        [
            gpu
            for gpu in context.gpus
            if not gpu.memory_unified
            or checks_of(maker_of(gpu.name)).computes_when_integrated(context)
        ]
    )
    # A driver with a library may fail while the others answer: that has checks of its own.
    silent = [
        maker
        for maker in makers()
        if maker not in found
        and checks_of(maker).find_library is not None
        and any(card.driver in maker.kernel_drivers for card in context.cards)
    ]
    return (*found, *silent) if found else ()


def _line(build: Build) -> str:
    extra = f", {build.extra}" if build.extra else ""
    return f"{build.version}  {build.target}{extra}  {build.folder}"


def _torch(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "torch/version.py")
    if text is None:
        return None
    known = dict(_ASSIGNED.findall(text))
    cudnn = cudnn_of_packages(folder)
    cuda = known.get("cuda") or None
    extra = "" if cudnn is None or cuda is None else f"cuDNN {cudnn}"
    version = known.get("__version__") or "unknown version"
    rocm, xpu = known.get("hip") or None, known.get("xpu") or None
    return Build(prefix, version, {"cuda": cuda, "rocm": rocm, "xpu": xpu}, extra)


def _tensorflow(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "tensorflow/python/platform/build_info.py")
    if text is None:
        return None
    known = dict(_TENSORFLOW.findall(text)) if _CUDA_BUILD.search(text) else {}
    names = ("tensorflow", "tensorflow_gpu", "tensorflow_rocm")
    version = next(filter(None, (_distribution(folder, name) for name in names)), None)
    extra = f"cuDNN {known['cudnn']}" if known.get("cudnn") else ""
    rocm = "" if _ROCM_BUILD.search(text) else None
    platforms = {"cuda": known.get("cuda"), "rocm": rocm}
    return Build(prefix, version or "unknown version", platforms, extra)


def _jax(folder: Path, prefix: str) -> Build | None:
    version = _distribution(folder, "jax")
    if version is None:
        return None
    cuda = _newest_plugin(folder, _PLUGIN)
    if cuda is None and (old := _OLD_JAXLIB.search(_distribution(folder, "jaxlib") or "")):
        cuda = old[1]
    return Build(prefix, version, {"cuda": cuda, "rocm": _newest_plugin(folder, _ROCM_PLUGIN)})


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


def _environments(machine: ExaminedMachine) -> Iterator[tuple[str, Path]]:
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


def _prefixes(machine: ExaminedMachine) -> Iterator[str]:
    for variable in _ENVIRONMENT_VARIABLES:
        yield from (folder.rstrip("/") for folder in machine.folders(variable))
    for folder in machine.folders("PATH"):
        if any(exists(machine.path(f"{folder}/{python}")) for python in ("python", "python3")):
            yield folder.rstrip("/").rpartition("/")[0] or "/"
    yield machine.prefix
    yield from (f"{home.rstrip('/')}/.local" for home in machine.folders("HOME"))


def _package_folders(machine: ExaminedMachine, prefix: str) -> Iterator[Path]:
    for pattern in ("lib*/python3*/site-packages", "lib/python3*/dist-packages"):
        yield from reversed(machine.folder(prefix, pattern))


def cudnn_version(header: str) -> str | None:
    """The version that a header of cuDNN defines."""
    numbers = dict(_CUDNN.findall(header))
    if len(numbers) < 3:
        return None
    return f"{numbers['MAJOR']}.{numbers['MINOR']}.{numbers['PATCHLEVEL']}"


def cudnn_of_packages(folder: Path) -> str | None:
    """The version of the cuDNN among Python packages."""
    headers = found(folder, "nvidia/cudnn/include/cudnn_version*.h")
    return next(filter(None, (cudnn_version(read_text(file) or "") for file in headers)), None)
