"""Tests of the archive: the history of a machine on disk."""
