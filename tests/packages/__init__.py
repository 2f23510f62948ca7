"""Tests of the files in ``packages/``, and of what they need."""
