"""Processes of another machine, through real pipes."""
