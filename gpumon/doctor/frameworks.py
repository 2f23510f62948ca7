"""PyTorch, TensorFlow and JAX: the CUDA version each was built for, read from its files.

No framework is imported: that takes seconds and GPU memory, and fails when it is most needed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from gpumon.doctor.cuda import LEAST_DRIVER, cudnn_of_packages, parse_version
from gpumon.doctor.machine import found, read_text
from gpumon.doctor.result import failed, passed, unknown, warned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpumon.doctor.context import DiagnosticContext
    from gpumon.doctor.machine import Machine
    from gpumon.doctor.result import Result

_STRING = r"""['"]([^'"]*)['"]"""
_ASSIGNED = re.compile(rf"^(__version__|cuda|hip)\b[^=\n]*=\s*(?:{_STRING}|None)", re.MULTILINE)
_TENSORFLOW = re.compile(rf"""['"](cuda|cudnn)_version['"]\s*[,:]\s*{_STRING}""")
_CUDA_BUILD = re.compile(r"""['"]is_cuda_build['"]\s*[,:]\s*True""")
_PLUGIN = re.compile(r"jax_cuda(\d+)_(?:plugin|pjrt)")
_OLD_JAXLIB = re.compile(r"\+cuda(\d+)")


class Build(Struct, frozen=True):
    """A framework in one environment.

    Attributes:
        folder: The environment.
        version: Its own.
        cuda: The CUDA that it was built for, ``12.4`` or ``12``; ``None`` without CUDA.
        extra: Further information.
    """

    folder: str
    version: str
    cuda: str | None
    extra: str = ""


def torch(case: DiagnosticContext) -> Result | None:
    """PyTorch, by ``torch/version.py``."""
    return _judged(case, "torch", _torch, "Run `pip install torch`: on Linux it includes CUDA.")


def tensorflow(case: DiagnosticContext) -> Result | None:
    """TensorFlow, by its build information."""
    advice = "Run `pip install 'tensorflow[and-cuda]'`."
    return _judged(case, "TensorFlow", _tensorflow, advice)


def jax(case: DiagnosticContext) -> Result | None:
    """JAX, by its installed plugins."""
    return _judged(
        case, "JAX", _jax, "Run `pip install 'jax[cuda12]'`, or cuda13 for newer drivers."
    )


def _judged(
    case: DiagnosticContext, name: str, read: Callable[[Path, str], Build | None], without: str
) -> Result | None:
    builds = [
        build
        for prefix, folder in _environments(case.machine)
        if (build := read(folder, prefix)) is not None
    ]
    if not builds:
        return None
    first, *others = builds
    details = tuple(_line(build) for build in (first, *others))
    if first.cuda is None:
        words = f"{first.version} in {first.folder} was built {first.extra or 'without CUDA'}"
        if not case.gpus:
            return passed(name, f"{words}.", *details[1:])
        words += ": it does not compute on these GPUs."
        return warned(name, words, without, *details[1:])
    built = _major(first.cuda)
    words = f"{first.version}, built for CUDA {first.cuda}"
    if case.cuda_version is None or built is None:
        return _not_compared(case, name, words, details)
    major, minor = case.cuda_version
    if built > major:
        least = LEAST_DRIVER.get(built)
        needed = "a newer driver" if least is None else f"driver {least} or later"
        return failed(
            name,
            f"{words}; the driver supports CUDA up to {major}.{minor}.",
            f"Upgrade to {needed}, or install a build for CUDA {major}.",
            *details,
        )
    newer = (parse_version(first.cuda) or (built, 0)) > (major, minor)
    if newer:
        words += f", newer than the driver's {major}.{minor} but of the same major version"
    return passed(name, f"{words}.", *details)


def _not_compared(
    case: DiagnosticContext, name: str, words: str, details: tuple[str, ...]
) -> Result:
    """The result if the driver's limit is unknown."""
    if case.driver.snapshot is None:
        return passed(
            name, f"{words}; without a driver there is nothing to compare it with.", *details
        )
    return unknown(name, f"{words}; the newest CUDA that the driver supports is unknown.")


def _major(cuda: str) -> int | None:
    digits = cuda.partition(".")[0]
    return int(digits) if digits.isdecimal() else None


def _line(build: Build) -> str:
    cuda = "no CUDA" if build.cuda is None else f"CUDA {build.cuda}"
    extra = f", {build.extra}" if build.extra else ""
    return f"{build.version}  {cuda}{extra}  {build.folder}"


def _torch(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "torch/version.py")
    if text is None:
        return None
    known = dict(_ASSIGNED.findall(text))
    hip = f"for ROCm {known['hip']}" if known.get("hip") else ""
    cudnn = cudnn_of_packages(folder)
    cuda = known.get("cuda") or None
    extra = hip or ("" if cudnn is None or cuda is None else f"cuDNN {cudnn}")
    version = known.get("__version__") or "unknown version"
    return Build(prefix, version, cuda, extra)


def _tensorflow(folder: Path, prefix: str) -> Build | None:
    text = read_text(folder / "tensorflow/python/platform/build_info.py")
    if text is None:
        return None
    known = dict(_TENSORFLOW.findall(text)) if _CUDA_BUILD.search(text) else {}
    version = _distribution(folder, "tensorflow") or _distribution(folder, "tensorflow_gpu")
    extra = f"cuDNN {known['cudnn']}" if known.get("cudnn") else ""
    return Build(prefix, version or "unknown version", known.get("cuda"), extra)


def _jax(folder: Path, prefix: str) -> Build | None:
    version = _distribution(folder, "jax")
    if version is None:
        return None
    plugins = [
        match[1]
        for path in found(folder, "jax_cuda*.dist-info")
        if (match := _PLUGIN.match(path.name))
    ]
    old = _OLD_JAXLIB.search(_distribution(folder, "jaxlib") or "")
    cuda = max(plugins, key=int, default=old[1] if old else None)
    return Build(prefix, version, cuda)


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
            real = folder.resolve()
            if real not in seen:
                seen.add(real)
                yield prefix, folder


def _prefixes(machine: Machine) -> Iterator[str]:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if machine.environ.get(variable, "").startswith("/"):
            yield machine.environ[variable].rstrip("/")
    for folder in machine.environ.get("PATH", "").split(":"):
        if not folder.startswith("/"):
            continue
        if any(machine.path(f"{folder}/{python}").exists() for python in ("python", "python3")):
            yield folder.rstrip("/").rpartition("/")[0] or "/"
    yield machine.prefix
    home = machine.environ.get("HOME", "")
    if home.startswith("/"):
        yield f"{home.rstrip('/')}/.local"


def _package_folders(machine: Machine, prefix: str) -> Iterator[Path]:
    for pattern in ("lib*/python3*/site-packages", "lib/python3*/dist-packages"):
        yield from reversed(machine.folder(prefix, pattern))
