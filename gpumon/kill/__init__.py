"""Terminates processes, and watches until their memory is reclaimed or explains why it is not."""
