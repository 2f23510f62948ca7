"""Rows of cells."""
