"""The interval between samples."""

MIN_INTERVAL = 0.1
"""Seconds."""
MAX_INTERVAL = 3600.0
"""Seconds."""
LOG_INTERVAL = 1.0
"""Seconds, the default of a log and of a stream."""
