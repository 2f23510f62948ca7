"""gpumon that hangs between SIGSTOP and SIGKILL: ``python -m tests.kill.hung_gpumon …``.

The rest of the command line is gpumon's. It hangs when it looks for children of a process that is
stopped, as where ``/proc`` hangs. ``MOST_SECONDS`` in the environment replaces that of gpumon.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING

from gpumon.cli import main
from gpumon.host import process_tree
from gpumon.kill import frozen
from gpumon.system.system import THIS_SYSTEM
from tests import lives

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpumon.host.process_host import RelatedProcess
    from gpumon.model.processes import ProcessId
    from gpumon.system.system import System

COMMAND = (sys.executable, "-m", "tests.kill.hung_gpumon")

_read_families = process_tree.read_relatives


def _hang(roots: Iterable[ProcessId], system: System = THIS_SYSTEM) -> tuple[RelatedProcess, ...]:
    roots = tuple(roots)
    if any(
        (relative := lives.look(root.pid)) is not None and relative.state == "T" for root in roots
    ):
        threading.Event().wait()
    return _read_families(roots, system)


if __name__ == "__main__":
    process_tree.read_relatives = _hang
    frozen.MOST_SECONDS = float(os.environ.get("MOST_SECONDS", lives.PATIENCE))
    sys.exit(main())
