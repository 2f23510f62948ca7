"""The screen's parts, without a terminal."""
