"""gpumon as it is, but that it does not read how much of a GPU works (GPM): to see what that costs.

python -m tests.bench.without_gpm [arguments of gpumon]
"""

from __future__ import annotations

import sys
from typing import Any

from gpumon.cli import main
from gpumon.makers import machine

_this_machine = machine.this_machine


def _without_gpm(*arguments: Any, **options: Any) -> Any:
    return _this_machine(*arguments, **{**options, "profiled": False})


if __name__ == "__main__":
    machine.this_machine = _without_gpm
    sys.exit(main())
