"""Ending processes, and what became of their memory."""
