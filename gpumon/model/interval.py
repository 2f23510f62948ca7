"""The bounds of the interval between samples."""

MIN_INTERVAL = 0.1
"""Seconds."""
MAX_INTERVAL = 3600.0
"""Seconds."""
