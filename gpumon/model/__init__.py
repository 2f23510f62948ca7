"""The data that travels, and its tables of metrics and thresholds."""
