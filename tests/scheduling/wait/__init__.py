"""Waiting for cards and processes."""
