"""The first lines of the two files of a log of one machine."""

from __future__ import annotations

from gpumon.recording.csv.rows import ONE_MACHINE

GPU_HEADER = ONE_MACHINE.gpu_header
PROCESS_HEADER = ONE_MACHINE.process_header
