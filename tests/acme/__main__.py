"""Runs ``gpumon`` on a machine with these GPUs."""

import sys
from functools import partialmethod

from gpumon.model.makers import FOLDERS
from gpumon.sampling.enrichment import Lookup

if __name__ == "__main__":
    # What a real maker's line in ``FOLDERS`` does; nothing has read it yet.
    FOLDERS.append("tests.acme")
    # Nothing is late, however busy the machine.
    Lookup.look_once = partialmethod(Lookup.look_once, patience=60.0)  # type: ignore[assignment]  # a method
    from gpumon.cli import main

    sys.exit(main())
