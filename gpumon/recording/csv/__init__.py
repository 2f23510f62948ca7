"""Logs: two CSV files that any tool can read and that gpumon can replay.

``run.csv`` has one row per GPU and sample, ``run.processes.csv`` one row per process and GPU.
``columns`` defines the columns; ``docs/log.md`` documents them for users.
"""
