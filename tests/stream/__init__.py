"""The lines of a stream: written, read, and damaged."""
