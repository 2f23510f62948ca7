"""A stream: written, read, and damaged."""
