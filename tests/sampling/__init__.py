"""The sampling thread and the look-ups beside it."""
