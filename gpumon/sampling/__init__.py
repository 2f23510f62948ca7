"""The sampling thread, and the slow look-ups beside it."""
