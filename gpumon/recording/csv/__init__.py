"""Logs: two CSV files that any tool reads, and gpumon shows as they were.

``run.csv`` has a row for each card and sample, ``run.processes.csv`` a row for each process and
card. ``columns`` says what stands in them, ``docs/log.md`` says it to people.
"""
