"""Tests of the functions for Python programs."""
