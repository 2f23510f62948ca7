"""Compiles the driver and the owner program on demand, once for each version of their sources.

The compiler is a Python package, so that the tests need nothing but Python, and compile the same
bytes everywhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import NATIVE, SOURCES, c_header

if TYPE_CHECKING:
    from collections.abc import Iterable

_FLAGS = (
    # For any processor of this architecture: a home directory may be shared between machines.
    f"--target={sysconfig.get_config_var('MULTIARCH')}",
    "-std=gnu11",
    "-O2",
    "-s",  # names of temporary files would be in it
    "-Wall",
    "-Wextra",
    "-Werror",
    "-ffp-contract=off",  # Python must be able to compute the very same numbers
)
_LIBRARY = "libnvidia-ml.so.1"

CACHE = Path(__file__).parents[2] / "build" / "simulated-driver"
"""In the checkout: whoever runs the tests may have no home directory."""
_COMPILER_CACHE = CACHE / "zig"
"""What the compiler keeps, such as its own parts of every program."""


def _compile(target: str, flags: Iterable[str], files: dict[str, str]) -> Path:
    """Returns the compiled target, from the cache if these very files were compiled before.

    Several test processes may come here at once: the first one compiles, and the others wait for
    it. The result is moved into place in one step.
    """
    options = [*_FLAGS, *flags]
    # Its version. ``importlib.metadata`` would take 2 MiB, which ``tests.bench.soak`` would count.
    found = (path.name for entry in sys.path for path in Path(entry).glob("ziglang-*.dist-info"))
    compiler = sorted(set(found))
    content = repr((compiler, options, sorted(files.items())))
    folder = CACHE / hashlib.sha256(content.encode()).hexdigest()[:16]
    result = folder / target
    if result.exists():
        return result
    folder.mkdir(parents=True, exist_ok=True)
    with (
        (folder / f"{target}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=folder) as work,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if result.exists():
            return result
        for name, text in files.items():
            (Path(work) / name).write_text(text)
        sources = [name for name in files if name.endswith(".c")]
        done = subprocess.run(
            [sys.executable, "-m", "ziglang", "cc", *options, "-o", target, *sources, "-lm"],
            cwd=work,
            # In TMPDIR the compiler takes a percent sign for a digit to choose.
            env={**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(_COMPILER_CACHE), "TMPDIR": "."},
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{target} did not compile: {done.stderr}")
        (Path(work) / target).replace(result)
    return result


def build(without: Iterable[str] = ()) -> Path:
    """Returns the path of a `libnvidia-ml.so.1`, which lacks the symbols named in `without`."""
    hidden = "".join(f"{name}; " for name in sorted(without))
    files = {
        **{path.name: path.read_text() for path in SOURCES},
        "sim.h": (NATIVE / "sim.h").read_text(),
        "layout.h": c_header(),
        "exports.map": f"{{ global: nvml*; local: {hidden}*; }};\n",
    }
    flags = (
        "-shared",
        "-fPIC",
        "-pthread",
        f"-Wl,-soname,{_LIBRARY}",
        "-Wl,--version-script=exports.map",
    )
    return _compile(_LIBRARY, flags, files)


def build_owner() -> Path:
    """Returns the path of the program that stands for a process on a card."""
    source = NATIVE / "owner.c"
    return _compile("owner", (), {source.name: source.read_text()})
