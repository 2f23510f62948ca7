"""zstd: of the standard library since Python 3.14, before that of ``backports.zstd``.

``from gpumon.system.zstandard import zstd``. Importing it takes milliseconds and half a MiB, so
what is needed at the start does without it.
"""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
