"""What was seen: ``Recording`` is the interface, in memory or in a log."""
