"""Makes a release and tries it: ``python -m tests.packages.release [FOLDER]``.

Builds sdist and wheel of the checkout, has twine check them, and uses each as somebody would who
installs it: in a bare virtual environment, with the demo in a terminal. Nothing is uploaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from gpumon import __version__
from tests.screen import Screen

ROOT = Path(__file__).parents[2]
READY = r"GPU-MEM▼[\s\S]*\n q quit"


def main(folder: Path) -> None:
    """Make the files of the release in a folder, which must have none of this version yet."""
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(__version__)} - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        sys.exit(f"CHANGELOG.md has no section '## {__version__} - DATE'")
    names = (f"gpumon_tui-{__version__}-py3-none-any.whl", f"gpumon_tui-{__version__}.tar.gz")
    files = [folder / name for name in names]
    if there := [str(file) for file in files if file.exists()]:
        sys.exit(f"already there: {', '.join(there)}")
    folder.mkdir(parents=True, exist_ok=True)
    # From there: the checkout may have a folder with the name of this module.
    _run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    _run(sys.executable, "-m", "twine", "check", "--strict", *files)
    for file in files:
        _try(file)
    print(f"""
{files[0]} and {files[1].name} are good. What is left:
    git tag v{__version__}
    python -m twine upload {folder}/gpumon_tui-{__version__}*""")


def _try(file: Path) -> None:
    """Install a file where nothing is, and see the program start."""
    with tempfile.TemporaryDirectory() as empty:
        place = Path(empty) / "venv"
        venv.create(place, with_pip=True)
        _run(place / "bin/python", "-m", "pip", "install", "--quiet", file)
        program = place / "bin/gpumon"
        told = subprocess.run(
            [program, "--version"], cwd=empty, capture_output=True, text=True, check=True
        )
        assert told.stdout.startswith(f"gpumon {__version__}\n"), told.stdout
        assert (place / "share/man/man1/gpumon.1").is_file(), "no manual page"
        # Nothing of the caller's environment: not its configuration, not its packages.
        env = {"PATH": os.defpath, "HOME": empty, "LANG": "C.UTF-8"}
        with Screen([str(program), "--demo"], env=env) as screen:
            screen.wait_for(READY)
            screen.type("q")
            status = screen.wait_end()
        assert status == 0, f"gpumon --demo ended with {status}"
        print(f"{file.name}: installed, started and ended")


def _run(*command: str | Path, cwd: Path | None = None) -> None:
    print("+", *command, flush=True)
    if status := subprocess.run(command, cwd=cwd, check=False).returncode:
        sys.exit(status)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist").absolute())
