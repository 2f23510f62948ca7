"""``python -m gpumon`` is ``gpumon``."""

from gpumon.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
